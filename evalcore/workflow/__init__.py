"""The workflow engine: runs the blocks of a workflow file."""
