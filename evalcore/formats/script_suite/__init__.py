"""Script suites: tests of statements."""
