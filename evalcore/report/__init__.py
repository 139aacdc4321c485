"""REPORT: forms of one summary; pure functions from values to text."""
