"""Configurations of promptfoo → suites."""
