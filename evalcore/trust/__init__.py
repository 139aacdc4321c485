"""What a suite from somewhere else may do: imports, commands, files (spec/engine.md, Trust)."""
