-- The tests of a script suite, in the file's order. A case with metadata stands for no test.
WITH placeholders AS (
    SELECT DISTINCT case_id
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
    WHERE metadata IS NOT NULL
)
SELECT variant, case_group, case_id, score, case_id IN (FROM placeholders) AS placeholder
FROM cases
ORDER BY variant_number, case_number
