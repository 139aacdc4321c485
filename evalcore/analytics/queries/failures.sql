-- The first work items that did not pass: errors, failed, blocked, then those never executed. What
-- is not for its target is no failure.
WITH chosen AS (
    SELECT
        item,
        CASE
            WHEN status = 'error' THEN 0
            WHEN status <> 'completed' THEN 3
            WHEN outcome = 'blocked' THEN 2
            ELSE 1
        END AS rank
    FROM items
    WHERE NOT passed AND (stopped OR NOT left_out)
    ORDER BY rank, item
    LIMIT $most
)
SELECT
    case_id, variant, iteration, status, outcome, score, error.kind, error.message, reason,
    output[:500],
    list_transform(
        list_filter(coalesce(assertions, []), a -> a.outcome <> 'passed'),
        a -> [a.name, a.type, a.block, a.outcome, a.expected, a.actual, coalesce(a.message, '')]
    ),
    finish_reason
FROM result_rows(getvariable('files'))
JOIN chosen USING (item)
ORDER BY rank, item
