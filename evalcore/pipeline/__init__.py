"""The stages of a run: load → plan → execute → aggregate → decide → report.

`plan` (PLAN), `execute` (EXECUTE) and `finish` (AGGREGATE, DECIDE, REPORT) have a function for each
stage; `finish.evaluate` joins them. Between `plan_run` and `finish_run` everything stands in the
store, so any process can go on.
"""
