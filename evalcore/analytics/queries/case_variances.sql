-- How the scores of cases scatter over the last 20 whole runs of a suite with the cases $cases_sha256:
-- the mean over the cases of the variance between runs of the same work, times the iterations; and
-- the variance over the cases of the difference between the first and the last run.
WITH chosen AS (
    SELECT run_id, row_number() OVER (ORDER BY max(started_at), run_id) AS number
    FROM (
        SELECT run_id, started_at FROM runs
        WHERE suite = $suite AND state = 'completed' AND part IS NULL
            AND cases_sha256 = $cases_sha256
    )
    GROUP BY run_id
    ORDER BY number DESC
    LIMIT 20
),
scores AS (
    SELECT variant, case_id, number, score, work_sha256, iterations
    FROM cases JOIN chosen USING (run_id)
    WHERE suite = $suite AND score IS NOT NULL AND errors = 0 AND blocked = 0
),
repeated AS (
    SELECT variant, case_id, var_samp(score) * avg(iterations) AS noise
    FROM scores
    GROUP BY variant, case_id, work_sha256
    HAVING count(*) > 1
),
ends AS (
    SELECT
        variant, case_id, arg_max(score, number) - arg_min(score, number) AS d,
        any_value(iterations) AS iterations
    FROM scores
    GROUP BY variant, case_id
    HAVING count(DISTINCT work_sha256) > 1
)
SELECT
    (SELECT count(*) FROM chosen),
    (SELECT avg(noise) FROM repeated),
    (SELECT var_samp(d) FROM ends),
    (SELECT avg(iterations) FROM ends)
