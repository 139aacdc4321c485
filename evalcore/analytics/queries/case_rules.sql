-- Whether a case has passed: of `n` items that count, `c` passed (docs/reference/engine.md).
CREATE OR REPLACE TEMP MACRO case_passes(
    reducer, by_score, n, c, wanted, sound, score, threshold
) AS coalesce(
    CASE
        WHEN n = 0 THEN false
        WHEN reducer IN ('max', 'pass_at_k') THEN c >= 1
        WHEN reducer = 'at_least_k' THEN c >= wanted
        WHEN by_score AND n > 1 THEN sound AND score >= threshold - 1e-9
        ELSE c = n
    END,
    false
)
