-- How often the cases of a suite differ although their work is the same: between iterations of a
-- run, and between one run and the next one that measured the case. $suite: its name; $variant:
-- only this one, NULL for all. What ended in error or blocked says nothing.
WITH measured AS (
    SELECT
        case_id, case_group, variant, passed, iterations, passed_iterations, work_sha256,
        lag(passed) OVER neighbours AS passed_before,
        lag(work_sha256) OVER neighbours AS work_before
    FROM cases
    JOIN (SELECT run_id, variant, started_at FROM runs WHERE suite = $suite) USING (run_id, variant)
    WHERE suite = $suite AND errors = 0 AND blocked = 0 AND iterations > 0
        AND ($variant IS NULL OR variant = $variant)
    WINDOW neighbours AS (PARTITION BY case_id, case_group, variant ORDER BY started_at, run_id)
),
counted AS (
    SELECT
        case_id, case_group, variant,
        count(*) FILTER (iterations > 1 AND passed_iterations NOT IN (0, iterations)) AS mixed,
        count(*) FILTER (iterations > 1) AS repeated,
        count(*) FILTER (work_sha256 = work_before AND passed <> passed_before) AS flipped,
        count(*) FILTER (work_sha256 = work_before) AS again
    FROM measured
    GROUP BY case_id, case_group, variant
)
SELECT case_id, case_group, variant, mixed, repeated, flipped, again
FROM counted
WHERE mixed + flipped > 0
ORDER BY greatest(mixed / nullif(repeated, 0), flipped / nullif(again, 0)) DESC,
    case_id, case_group, variant
