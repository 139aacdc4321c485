-- Each case × variant as gates over time compare it: `measured` where all its items are completed
-- and none is blocked. `now_wavered`: its iterations differ.
-- `attempts`: how many iterations it has.
CREATE OR REPLACE TEMP VIEW measured_cases AS
SELECT
    cases.case_number, cases.variant_number, cases.variant, cases.case_id,
    cases.score AS now_score, cases.passed AS now_passed, state.*
FROM cases
JOIN (
    SELECT
        case_number AS number, variant_number AS place,
        count(*) FILTER (NOT left_out) AS attempts,
        coalesce(bool_and(status = 'completed' AND outcome <> 'blocked')
            FILTER (NOT left_out), false) AS measured,
        bool_or(passed) AND NOT bool_and(passed) FILTER (NOT left_out) AS now_wavered
    FROM items
    GROUP BY ALL
) AS state ON state.number = cases.case_number AND state.place = cases.variant_number
WHERE cases.counted
