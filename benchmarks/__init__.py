"""Measurements with bounds; each module is a program."""
