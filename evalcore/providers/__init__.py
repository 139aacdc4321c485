"""Clients of model providers: one attempt of one request over the wire."""
