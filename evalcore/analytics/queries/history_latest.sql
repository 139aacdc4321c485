-- The newest runs of every suite that no filter cut, at most $most of each variant, oldest first; the columns are
-- those of `history_trend.sql` after the suite's name.
SELECT
    suite, run_id, started_at, variant, coalesce(decision, state) AS decision,
    score, score_low, score_high, pass_rate, pass_rate_low, pass_rate_high, cases, passed_cases,
    p50_latency_ms, p50_latency_low_ms, p50_latency_high_ms, cost_usd, cost_low_usd, cost_high_usd,
    CASE WHEN coalesce(input_tokens, output_tokens) IS NOT NULL
        THEN coalesce(input_tokens, 0)::HUGEINT + coalesce(output_tokens, 0)
    END AS tokens, tokens_low, tokens_high,
    target, model, target_sha256, cases_sha256, judges_sha256, suite_sha256, engine,
    git_commit, git_dirty, part
FROM runs
WHERE part IS NULL OR part NOT LIKE 'chosen by %'
QUALIFY row_number() OVER (PARTITION BY suite, variant ORDER BY started_at DESC, run_id DESC) <= $most
ORDER BY suite, started_at, run_id, variant
