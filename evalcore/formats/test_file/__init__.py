"""Test files: tests in YAML, JSON, JSONL and tables."""
