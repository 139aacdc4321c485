"""What several formats have: targets, workspaces, variables, rows, options."""
