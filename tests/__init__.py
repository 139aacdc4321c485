"""The tests of evalcore, flows and deployments."""
