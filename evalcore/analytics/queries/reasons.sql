-- Why items were skipped, the most frequent reason first.
SELECT coalesce(reason, 'no reason given') AS why, count(*) AS n
FROM read_parquet(getvariable('files'), hive_partitioning = false)
WHERE status = 'skipped'
GROUP BY why
ORDER BY n DESC, why
LIMIT 20
