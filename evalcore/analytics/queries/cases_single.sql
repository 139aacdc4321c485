-- `cases` where no case is iterated: each item is a case of its own, and nothing is grouped.
-- (Grouping a million of them takes 300 MB.) The columns mean what they mean in `cases.sql`.
-- $reducer, $k: the policy's; $by_score: whether a reduced score that meets the threshold passes.
CREATE OR REPLACE TEMP TABLE cases AS
WITH reduced AS (
    SELECT
        case_number,
        variant_number,
        case_id,
        case_group,
        variant,
        threshold,
        counted::BIGINT AS n,
        passed::BIGINT AS c,
        coalesce($k, counted::BIGINT) AS wanted,
        least(coalesce($k, 1), counted::BIGINT) AS k,
        CASE WHEN counted_score IS NOT NULL THEN [counted_score] END AS scores,
        CASE WHEN counted THEN
            status = 'completed' AND outcome <> 'blocked' AND len(coalesce(missed, [])) = 0
        END AS sound
    FROM items
),
scored AS (
    SELECT
        *,
        CASE $reducer
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
        END AS score
    FROM reduced
)
SELECT
    case_number, variant_number, case_id, case_group, variant,
    CASE WHEN n > 0 THEN score END AS score,
    n > 0 AS counted,
    case_passes($reducer, $by_score, n, c, wanted, sound, score, threshold) AS passed
FROM scored
