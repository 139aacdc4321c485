"""STATISTICS: formulas of docs/reference/statistics.md; pure functions of numbers."""
