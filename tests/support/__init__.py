"""Servers, stores, reports and commands that tests share."""
