-- The cases of the runs $run_ids (oldest first), as gates over time need them: numbered from 1.
-- `score` is NULL where the case was not measured (blocked, in error, quarantined). `wavered`: its
-- iterations differ, or it came out differently from the run before although the work is the same.
WITH numbered AS (
    SELECT unnest($run_ids::VARCHAR[]) AS run_id, unnest(range(1, len($run_ids::VARCHAR[]) + 1)) AS number
),
marked AS (
    SELECT
        number, variant, case_id, cluster, work_sha256, passed,
        coalesce(
            score IS NOT NULL AND blocked = 0 AND errors = 0 AND NOT coalesce(quarantined, false),
            false
        ) AS measured,
        score,
        passed_iterations > 0 AND passed_iterations < iterations AS mixed
    FROM cases JOIN numbered USING (run_id)
    WHERE suite = $suite
),
following AS (
    SELECT
        *,
        lag(passed) OVER before AS was_passed,
        lag(work_sha256) OVER before AS was_work
    FROM marked
    WHERE measured
    WINDOW before AS (PARTITION BY variant, case_id ORDER BY number)
)
SELECT
    number::INTEGER AS number, variant, case_id, cluster, score, passed,
    coalesce(mixed OR (passed <> was_passed AND work_sha256 = was_work), false) AS wavered
FROM following
ORDER BY variant, case_id, number
