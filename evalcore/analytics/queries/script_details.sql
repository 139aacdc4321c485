-- The iterations of each test, in the order of script_tests.sql.
WITH errors AS (
    SELECT
        item,
        CASE WHEN contains(error.message, error.kind) THEN error.message
            ELSE error.kind || ': ' || error.message END AS message
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
    WHERE status <> 'completed' AND error IS NOT NULL
)
SELECT
    list((item % $iterations)::INTEGER ORDER BY item) AS iterations,
    list(counted_score ORDER BY item) AS scores,
    list(message ORDER BY item) AS errors,
    CASE WHEN count(counted_score) > 1
        THEN var_samp(counted_score) * (count(counted_score) - 1) END AS square_sum
FROM items LEFT JOIN errors USING (item)
GROUP BY case_number, variant_number
ORDER BY variant_number, case_number
