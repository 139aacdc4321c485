-- The score of a case by the reducer (docs/reference/engine.md#scores): `n` items count, `c` passed.
CREATE OR REPLACE TEMP MACRO reduced_score(reducer, scores, n, c, k, wanted) AS (
    CASE reducer
        WHEN 'median' THEN list_median(scores)
        WHEN 'min' THEN list_min(scores)
        WHEN 'max' THEN list_max(scores)
        WHEN 'pass_at_k' THEN
            CASE WHEN n - c < k THEN 1.0
            -- The product of no factors is 1, DuckDB says NULL.
            ELSE 1.0 - coalesce(
                list_product(list_transform(range(n - c + 1, n + 1), i -> 1.0 - k / i)), 1.0
            )
            END
        WHEN 'pass_all_k' THEN
            CASE WHEN c < k THEN 0.0
            ELSE list_product(list_transform(range(0, k), i -> (c - i) / (n - i)))
            END
        WHEN 'at_least_k' THEN CASE WHEN c >= wanted THEN 1.0 ELSE 0.0 END
        ELSE CASE WHEN len(scores) = 1 THEN scores[1]
             ELSE list_aggregate(scores, 'fsum') / len(scores) END
    END
);

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
