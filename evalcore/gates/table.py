"""The table of gates: the name in files, on the command line and in Python, and the class.

`from evalcore import gates` has these names. A new gate is a class and a row here.
"""

from evalcore.gates import builtin, comparing, own_functions

cost_under = builtin.CostUnder
custom = own_functions.CustomGate
error_rate_under = builtin.ErrorRateUnder
errors = builtin.Errors
latency_under = builtin.LatencyUnder
no_regressions = comparing.NoRegressions
no_significant_regression = comparing.NoSignificantRegression
p95_latency_under = builtin.P95LatencyUnder
pass_rate = builtin.PassRate
required_assertions = builtin.RequiredAssertions
required_cases = builtin.RequiredCases
score_at_least = builtin.ScoreAtLeast
threshold = builtin.Threshold
tokens_under = builtin.TokensUnder
