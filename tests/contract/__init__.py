"""One table of promises, checked against every implementation."""
