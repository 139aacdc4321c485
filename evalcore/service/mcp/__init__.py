"""The Model Context Protocol: the operations on saved evals as tools, over HTTP and stdio."""
