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
        CASE WHEN counted_score IS NOT NULL THEN [counted_score] END AS scores,
        CASE WHEN counted THEN
            status = 'completed' AND outcome <> 'blocked' AND len(coalesce(missed, [])) = 0
        END AS sound
    FROM items
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
