-- Items by what became of them, in some result parts. $files: the Parquet parts.
SELECT
    count(*) AS done,
    count(*) FILTER (status = 'completed' AND outcome = 'passed') AS passed,
    count(*) FILTER (status = 'completed' AND outcome = 'failed') AS failed,
    count(*) FILTER (status = 'completed' AND outcome = 'blocked') AS blocked,
    count(*) FILTER (status = 'error') AS errors,
    count(*) FILTER (status = 'skipped') AS skipped,
    count(*) FILTER (status = 'cancelled') AS cancelled
FROM read_parquet($files, hive_partitioning = false)
