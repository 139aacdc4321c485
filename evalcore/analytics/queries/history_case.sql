-- A case's outcome in each run and variant of a suite, oldest first. $suite, $case_id: names.
SELECT
    run_id, started_at, case_group, variant, passed, cases.score, iterations, passed_iterations,
    errors, cases.blocked, work_sha256, quarantined
FROM cases
JOIN (SELECT run_id, variant, started_at FROM runs WHERE suite = $suite) USING (run_id, variant)
WHERE suite = $suite AND case_id = $case_id
ORDER BY started_at, run_id, case_group, variant
