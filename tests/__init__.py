"""The tests of evalcore."""
