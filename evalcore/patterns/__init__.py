"""Regular expressions of the dialects `python` and `ecmascript`, bounded in time."""
