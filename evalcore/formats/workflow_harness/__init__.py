"""Workflow files with an `eval:` section."""
