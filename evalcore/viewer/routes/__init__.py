"""The pages of the viewer, one module for each kind."""
