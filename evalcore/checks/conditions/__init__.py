"""Conditions of saved evals: one assertion about one output handle of a workflow block."""
