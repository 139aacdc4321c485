"""Folders that targets work in: made, prepared by hooks, watched for changes, removed."""
