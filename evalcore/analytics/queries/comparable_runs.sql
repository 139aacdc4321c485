-- The runs of a suite, newest first, and what keeps each of them from being compared with a new one
-- ($cases_sha256, $judges_sha256; $replayed: its answers come from recordings): NULL for nothing.
SELECT
    run_id,
    CASE
        WHEN any_value(state) <> 'completed' THEN 'not completed'
        WHEN any_value(part) IS NOT NULL AND sum(error) = 0
            AND sum(skipped) + sum(blocked) < sum(planned) THEN 'of a part'
        WHEN any_value(decision) = 'error' OR sum(error) > 0 THEN 'in error'
        WHEN sum(planned) > 0 AND sum(skipped) + sum(blocked) = sum(planned) THEN 'not measured'
        WHEN any_value(cases_sha256) IS DISTINCT FROM $cases_sha256 THEN 'with other cases'
        WHEN any_value(judges_sha256) IS DISTINCT FROM $judges_sha256 THEN 'with other judges'
        WHEN (any_value(mode) = 'replay') <> $replayed THEN 'with answers of another mode'
    END AS reason
FROM runs
WHERE suite = $suite
GROUP BY run_id
ORDER BY max(started_at) DESC, run_id DESC
