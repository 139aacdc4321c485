"""What can be evaluated: each kind answers a piece of work with evidence."""
