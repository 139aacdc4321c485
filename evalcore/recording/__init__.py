"""Exchanges with providers, kept so that a run can be repeated without them."""
