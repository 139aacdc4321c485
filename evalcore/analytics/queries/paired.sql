-- Candidate − baseline of the scores of the cases that both measured, and the cases of both that
-- passed on one side only (docs/reference/statistics.md).
WITH shared AS (
    SELECT
        place, case_number, case_id, CASE WHEN shared THEN difference END AS d,
        was_passed AND NOT now_passed AS worse, now_passed AND NOT was_passed AS better
    FROM pairs
    WHERE has_was AND has_now
),
means AS (
    SELECT
        place, count(*) AS compared, count(d) AS n,
        fsum(d ORDER BY case_number, case_id) / nullif(count(d), 0) AS mean,
        count(*) FILTER (worse) AS worse, count(*) FILTER (better) AS better
    FROM shared
    GROUP BY place
)
SELECT
    place, any_value(compared), any_value(n), any_value(mean),
    fsum((d - mean) * (d - mean) ORDER BY case_number, case_id),
    any_value(means.worse), any_value(means.better)
FROM shared JOIN means USING (place)
GROUP BY place
ORDER BY place
