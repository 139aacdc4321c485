-- Gate no_drift. The measures of the last 100 runs and of this one, by variant.
SELECT variant, run_id, cases, score, pass_rate, latency, cost, 0 AS vanished, number
FROM past_runs SEMI JOIN past_cases USING (number, variant)
WHERE number > (SELECT max(number) FROM past_runs) - 100
UNION ALL
SELECT
    variant, NULL, cases, score, pass_rate, latency, cost,
    (SELECT count(DISTINCT case_id) FROM vanished_cases AS v WHERE v.variant = m.variant), NULL
FROM variant_measures AS m
