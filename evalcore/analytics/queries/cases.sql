-- Case × variant after its iterations are reduced (docs/reference/engine.md#scores).
-- `cases_single.sql` stands in for it where a case has one iteration: change both.
-- $reducer, $k: the policy's; $by_score: whether a reduced score that meets the threshold passes.
CREATE OR REPLACE TEMP TABLE cases AS
WITH reduced AS (
    SELECT
        case_number,
        variant_number,
        any_value(case_id) AS case_id,
        any_value(case_group) AS case_group,
        any_value(variant) AS variant,
        any_value(threshold) AS threshold,
        count(*) FILTER (counted) AS n,
        count(*) FILTER (passed) AS c,
        coalesce($k, count(*) FILTER (counted)) AS wanted,
        least(coalesce($k, count(*)), count(*) FILTER (counted)) AS k,
        list(counted_score ORDER BY item) FILTER (counted_score IS NOT NULL) AS scores,
        bool_and(status = 'completed' AND outcome <> 'blocked' AND len(coalesce(missed, [])) = 0)
            FILTER (counted) AS sound
    FROM items
    GROUP BY case_number, variant_number
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
