"""What a suite from somewhere else may do: imports, commands, files (docs/reference/trust.md)."""
