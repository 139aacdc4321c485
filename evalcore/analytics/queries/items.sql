-- The rows of a run with the place of each item in the plan and the score that counts for it.
-- $files: the Parquet parts. $variants, $iterations: the plan's. $errors: fail, zero or exclude.
CREATE OR REPLACE TEMP TABLE items AS
SELECT
    *,
    item // ($variants * $iterations) AS case_number,
    (item // $iterations) % $variants AS variant_number,
    CASE
        WHEN status = 'completed' THEN score
        WHEN status = 'error' AND $errors <> 'exclude' THEN 0.0
    END AS counted_score,
    coalesce(status = 'completed' AND outcome = 'passed', false) AS passed,
    NOT (status = 'error' AND $errors = 'exclude') AS counted
FROM read_parquet($files)
