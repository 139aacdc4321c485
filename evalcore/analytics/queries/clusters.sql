-- The sums of the paired differences' distances from their mean, by cluster: how many, the sum of
-- their squares, the least, the greatest, the sum of their fourth powers. A cluster is the value that a case's
-- metadata has at $path (its group for $key 'group'); a case without one stands for itself.
WITH named AS (
    SELECT case_id, any_value(coalesce(
        json_extract_string(metadata, $path),
        CASE WHEN $key = 'group' THEN case_group END
    )) AS cluster
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
    GROUP BY case_id
),
shared AS (
    SELECT
        place, case_number, case_id, difference AS d,
        CASE WHEN cluster IS NULL THEN {'case': case_id, 'cluster': NULL}
            ELSE {'case': NULL, 'cluster': cluster} END AS cluster
    FROM pairs
    LEFT JOIN named USING (case_id)
    WHERE shared AND difference IS NOT NULL
),
means AS (
    SELECT place, fsum(d ORDER BY case_number, case_id) / count(d) AS mean
    FROM shared
    GROUP BY place
),
sums AS (
    SELECT place, cluster, fsum(d - mean ORDER BY case_number, case_id) AS total
    FROM shared JOIN means USING (place)
    GROUP BY place, cluster
)
SELECT
    place, count(*), fsum(total * total ORDER BY cluster),
    min(total), max(total), fsum(pow(total, 4) ORDER BY cluster)
FROM sums
GROUP BY place
ORDER BY place
