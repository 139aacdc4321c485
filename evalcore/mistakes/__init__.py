"""Mistakes in what users write: collected, worded, each with its place."""
