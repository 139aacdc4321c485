-- Case × variant after its iterations are reduced (docs/reference/engine.md#scores).
-- `cases_single.sql` stands in for it where a case has one iteration: change the columns in both.
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
        list(counted_score ORDER BY item) FILTER (counted_score IS NOT NULL) AS scores,
        bool_and(status = 'completed' AND outcome <> 'blocked' AND len(coalesce(missed, [])) = 0)
            FILTER (counted) AS sound
    FROM items
    GROUP BY case_number, variant_number
),
scored AS (
    SELECT *, reduced_score($reducer, scores, n, c, wanted) AS score FROM reduced
)
SELECT
    case_number, variant_number, case_id, case_group, variant,
    CASE WHEN n > 0 THEN score END AS score,
    n > 0 AS counted,
    case_passes($reducer, $by_score, n, c, wanted, sound, score, threshold) AS passed
FROM scored
