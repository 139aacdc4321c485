-- The suites and cases of $cases that passed in every variant of each of the last $most whole runs that
-- had them in quarantine; fewer runs are not enough.
WITH numbered AS (
    SELECT
        suite, case_id, cases.run_id, bool_and(passed AND errors = 0 AND blocked = 0) AS passed,
        row_number() OVER (
            PARTITION BY suite, case_id ORDER BY any_value(started_at) DESC, cases.run_id DESC
        ) AS number
    FROM cases
    JOIN (
        SELECT run_id, any_value(started_at) AS started_at FROM runs
        WHERE state = 'completed' AND part IS NULL GROUP BY run_id
    ) USING (run_id)
    WHERE quarantined AND case_id IN (SELECT unnest($cases::VARCHAR[]))
    GROUP BY suite, case_id, cases.run_id
)
SELECT suite, case_id
FROM numbered
WHERE number <= $most
GROUP BY suite, case_id
HAVING count(*) = $most AND bool_and(passed)
ORDER BY suite, case_id
