"""The service: saved workflow evals over REST and MCP."""
