"""Tables of cases that say what the system does."""
