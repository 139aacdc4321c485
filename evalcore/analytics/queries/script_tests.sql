-- The tests of a script suite, in the file's order. A placeholder stands for no test.
WITH placeholders AS (
    SELECT DISTINCT case_id
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
    WHERE metadata IS NOT NULL AND json_extract_string(metadata, '$.placeholder') = 'true'
)
SELECT variant, case_group, case_id, score, case_id IN (FROM placeholders) AS placeholder
FROM cases
ORDER BY variant_number, case_number
