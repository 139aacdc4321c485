-- One row for each run and variant of a suite, oldest first: the figure $metric (a name) with the
-- ends of its interval. `part`: why a run is no whole one. $suite: its name in the tables.
SELECT
    run_id, started_at, variant, coalesce(decision, state) AS decision,
    CASE $metric
        WHEN 'score' THEN [score, score_low, score_high]
        WHEN 'pass_rate' THEN [pass_rate, pass_rate_low, pass_rate_high]
        WHEN 'latency' THEN [p50_latency_ms, p50_latency_low_ms, p50_latency_high_ms]
        WHEN 'cost' THEN [cost_usd, cost_low_usd, cost_high_usd]
        WHEN 'tokens' THEN [
            CASE WHEN coalesce(input_tokens, output_tokens) IS NOT NULL
                THEN coalesce(input_tokens, 0)::HUGEINT + coalesce(output_tokens, 0)
            END::DOUBLE,
            tokens_low, tokens_high
        ]
    END AS figure,
    part,
    target, model, target_sha256, cases_sha256, judges_sha256, suite_sha256, engine,
    git_commit, git_dirty
FROM runs
WHERE suite = $suite
ORDER BY started_at, run_id, variant
