-- The id, the question and the output of each item in lower case, as one text; no word of a search
-- holds the character between them. {case_items}: the items of a case.
SELECT
    item // {iterations} AS number,
    lower(concat_ws(chr(31), case_id, question, output)) AS text
FROM read_parquet(getvariable('files'), hive_partitioning = false)
LEFT JOIN questions ON case_number = item // {case_items}
