"""Assertions as files write them → checks."""
