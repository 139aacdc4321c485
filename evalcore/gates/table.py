"""The table of gates: the name in files, on the command line and in Python, and the class.

`from evalcore import gates` has these names. A new gate is a class and a row here.
"""

from evalcore.gates import builtin, comparing, over_time

cost_under = builtin.CostUnder
custom = builtin.CustomGate
error_rate_under = builtin.ErrorRateUnder
errors = builtin.Errors
latency_under = builtin.LatencyUnder
no_drift = over_time.NoDrift
no_drop_from_history = over_time.NoDropFromHistory
no_metric_regressions = comparing.NoMetricRegressions
no_new_failures = over_time.NoNewFailures
no_regressions = comparing.NoRegressions
no_significant_regression = comparing.NoSignificantRegression
p95_latency_under = builtin.P95LatencyUnder
pass_rate = builtin.PassRate
reliable = over_time.Reliable
required_assertions = builtin.RequiredAssertions
required_cases = builtin.RequiredCases
score_at_least = builtin.ScoreAtLeast
threshold = builtin.Threshold
tokens_under = builtin.TokensUnder
