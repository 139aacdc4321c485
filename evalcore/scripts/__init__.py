"""Scripts: statements, the tools that they call, and the scopes that they see."""
