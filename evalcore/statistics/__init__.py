"""STATISTICS: formulas of spec/statistics.md; pure functions of numbers."""
