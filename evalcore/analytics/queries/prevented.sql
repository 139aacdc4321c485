-- Items that were skipped, or whose error has one of $kinds, in the newest run that has them.
-- $files: the Parquet parts of recorded runs; $ranks: the rank of each part's run, 0 the newest.
WITH parts AS (
    SELECT unnest($files) AS part, unnest($ranks) AS rank
),
rows AS (
    SELECT
        exec_key, status, reason, error, rank,
        row_number() OVER (PARTITION BY exec_key ORDER BY rank, item) AS place
    FROM read_parquet($files, hive_partitioning = false, filename = 'part')
    JOIN parts USING (part)
)
SELECT exec_key, status, reason, error.kind, error.message
FROM rows
WHERE place = 1 AND (status = 'skipped' OR (status = 'error' AND list_contains($kinds, error.kind)))
