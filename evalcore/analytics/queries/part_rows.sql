-- Of each result part how many rows it has, and whether they can be those of its shard's items.
-- The variable `files` holds the Parquet parts.
SELECT
    filename,
    count(*) AS rows,
    count(*) FILTER (
        item IS NULL OR case_id IS NULL OR variant IS NULL
        OR status NOT IN ('completed', 'error', 'cancelled', 'skipped') OR status IS NULL
    ) AS nulls,
    min(item) AS first,
    max(item) AS last,
    count(DISTINCT item) AS items
FROM read_parquet(getvariable('files'), hive_partitioning = false, filename = true)
GROUP BY filename
