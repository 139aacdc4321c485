-- The rows that hold a text ($text, lower case) in their id, question or an output. No word of a
-- search holds the character between them. $variants, $iterations: the plan's.
CREATE OR REPLACE TEMP TABLE matching_cases AS
SELECT DISTINCT item // $iterations AS number
FROM read_parquet(getvariable('files'), hive_partitioning = false)
LEFT JOIN questions ON questions.case_number = item // ($variants * $iterations)
WHERE $text <> '' AND contains(lower(concat_ws(chr(31), case_id, question, output)), $text)
