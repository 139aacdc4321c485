"""Executing what was asked for: a durable queue in the database, and workers that take from it."""
