"""YAML, JSON and CSV text read safely, with the line of everything in it."""
