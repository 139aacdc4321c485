"""Scorers: a number from 0 to 1 for each item."""
