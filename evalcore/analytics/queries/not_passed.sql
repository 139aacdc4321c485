-- The ids of cases that did not pass in some variant. What is not for its target does not count.
SELECT case_id
FROM cases
SEMI JOIN (
    SELECT case_number, variant_number FROM items WHERE stopped OR NOT left_out
) AS planned USING (case_number, variant_number)
WHERE NOT coalesce(passed, false)
GROUP BY case_id
ORDER BY min(case_number)
