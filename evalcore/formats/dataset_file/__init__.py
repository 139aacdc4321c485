"""Files that become cases of a dataset: traces, JSON lines, tables."""
