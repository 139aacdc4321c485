"""Processes that run the Python of suites: what they do ends no run and reaches no other item."""
