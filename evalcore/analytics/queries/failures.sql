-- The first work items that did not pass, worst first: errors, then blocked, then failed.
SELECT
    case_id, variant, iteration, status, outcome, score, error.kind, error.message, reason,
    output[:500],
    list_transform(
        list_filter(coalesce(assertions, []), a -> a.outcome <> 'passed'),
        a -> [a.name, a.type, a.block, a.outcome, a.expected, a.actual, a.message]
    )
FROM items
WHERE NOT passed
ORDER BY
    CASE WHEN status <> 'completed' THEN 0 WHEN outcome = 'blocked' THEN 2 ELSE 1 END,
    item
LIMIT $most
