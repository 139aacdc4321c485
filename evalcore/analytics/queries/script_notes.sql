-- What has to be said of the tests of a script suite: errors and warnings, each once per test.
WITH notes AS (
    SELECT
        item, variant, case_id, iteration,
        status = 'error' AS is_error,
        CASE WHEN status = 'error' THEN coalesce(error.message, error.kind)
            ELSE reason END AS message
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
    WHERE status <> 'completed'
    UNION ALL
    SELECT item, variant, case_id, iteration, false, a.message
    FROM (
        SELECT item, variant, case_id, iteration, unnest(assertions) AS a
        FROM read_parquet(getvariable('files'), hive_partitioning = false)
        WHERE status = 'completed'
    )
    WHERE coalesce(a.message, '') <> '' AND NOT (a.type = 'human' AND a.outcome = 'passed')
)
SELECT is_error, variant, case_id, message, list(iteration ORDER BY item) AS iterations
FROM notes
GROUP BY is_error, variant, case_id, message
ORDER BY min(item), is_error, message
