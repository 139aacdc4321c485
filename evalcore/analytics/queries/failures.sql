-- The first work items that did not pass: errors, failed, blocked, then those never executed. What
-- is not for its target is no failure.
SELECT item, case_id, variant
FROM items
WHERE NOT passed AND (stopped OR NOT left_out)
ORDER BY
    CASE
        WHEN status = 'error' THEN 0
        WHEN status <> 'completed' THEN 3
        WHEN outcome = 'blocked' THEN 2
        ELSE 1
    END,
    item
LIMIT $most
