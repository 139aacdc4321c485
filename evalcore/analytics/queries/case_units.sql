-- The number of each case's cluster: the value that its metadata has at $path (its group for $key
-- 'group'). A case without one is not among them: it stands for itself.
CREATE OR REPLACE TEMP TABLE case_units AS
WITH named AS (
    SELECT case_id, any_value(coalesce(
        json_extract_string(metadata, $path),
        CASE WHEN $key = 'group' THEN case_group END
    )) AS cluster
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
    GROUP BY case_id
)
SELECT case_id, cluster, dense_rank() OVER (ORDER BY cluster) AS unit
FROM named
WHERE cluster IS NOT NULL
