-- Gate no_new_failures. The cases that did not pass or were not measured, with what the last runs say of them.
WITH recent AS (
    SELECT *, row_number() OVER (PARTITION BY variant, case_id ORDER BY number DESC) AS back
    FROM past_cases CROSS JOIN (SELECT max(number) AS latest FROM past_runs)
    WHERE number > latest - greatest($runs, 20)
),
past AS (
    SELECT
        variant, case_id, bool_or(wavered) AS wavered,
        count(*) AS seen, bool_and(passed) FILTER (back <= $runs) AS passed,
        count(*) FILTER (NOT passed) AS failed_runs,
        count(*) FILTER (NOT passed AND score = 0) AS lost_runs
    FROM recent
    GROUP BY variant, case_id
),
once AS (
    SELECT count(*) AS failed_once
    FROM measured_cases JOIN past USING (variant, case_id)
    WHERE measured AND now_passed AND NOT now_wavered AND wavered AND failed_runs = 1
        AND (attempts = 1 OR lost_runs = 1)
)
SELECT
    variant, case_id, measured, coalesce(wavered, false) OR now_wavered,
    coalesce(past.passed, false),
    coalesce(seen < $runs AND NOT (past.passed OR wavered), true), (SELECT failed_once FROM once)
FROM (
    SELECT variant_number, case_number, variant, case_id, measured, now_passed, now_wavered
    FROM measured_cases
    UNION ALL
    SELECT DISTINCT NULL::BIGINT, NULL::BIGINT, variant, case_id, false, false, false
    FROM vanished_cases
) LEFT JOIN past USING (variant, case_id)
WHERE NOT (measured AND now_passed)
ORDER BY variant_number, case_number, variant, case_id
