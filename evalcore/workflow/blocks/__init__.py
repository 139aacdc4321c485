"""What each type of block does: a module a type."""
