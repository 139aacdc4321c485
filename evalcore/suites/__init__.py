"""The Python API: define a suite in code, run it, read its report (spec/suite-api.md)."""
