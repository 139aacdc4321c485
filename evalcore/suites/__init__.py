"""The Python API: define a suite in code, run it, read its report (docs/reference/suites.md)."""
