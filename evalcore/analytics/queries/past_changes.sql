-- Given rows of `past_cases` say nothing of the work of a case: it is taken for the same in every run.
CREATE OR REPLACE TEMP TABLE past_cases AS
SELECT * REPLACE (
    wavered OR coalesce(
        passed <> lag(passed) OVER (PARTITION BY variant, case_id ORDER BY number), false
    ) AS wavered
)
FROM past_cases
