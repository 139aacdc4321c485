-- The rows that hold a text ($text, lower case) in their id, question or an output.
CREATE OR REPLACE TEMP TABLE matching_cases AS
SELECT number
FROM case_rows LEFT JOIN questions USING (case_number)
WHERE contains(lower(case_id), $text) OR contains(lower(question), $text)
UNION
SELECT item // $iterations
FROM read_parquet(getvariable('files'), hive_partitioning = false)
WHERE contains(lower(output), $text)
