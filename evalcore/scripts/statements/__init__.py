"""The statements of scripts: one class each."""
