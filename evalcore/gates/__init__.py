"""DECIDE: gates over aggregates; pure, no I/O."""
