-- The rows that hold a text ($text, lower case) in their id, question or an output: $index is the
-- file of `search_index.py`.
CREATE OR REPLACE TEMP TABLE matching_cases AS
SELECT DISTINCT number
FROM read_parquet($index, hive_partitioning = false)
WHERE contains(text, $text)
