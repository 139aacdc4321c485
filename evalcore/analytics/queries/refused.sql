-- The shards (their place in $files) with items that a provider refused, or that were skipped since.
-- $kinds: the errors of a key or of credit. Nothing if no item was skipped for it ($reason).
WITH rows AS (
    SELECT
        list_position($files, filename) - 1 AS place,
        coalesce(status = 'skipped' AND reason = $reason, false) AS untried,
        coalesce(status = 'error' AND list_contains($kinds, error.kind), false)
            OR coalesce(outcome = 'blocked' AND reason IS NULL, false) AS refused
    FROM read_parquet($files, hive_partitioning = false, filename = true)
)
SELECT DISTINCT place FROM rows
WHERE (untried OR refused) AND (SELECT bool_or(untried) FROM rows)
ORDER BY place
