-- The items of one round: $round is the iteration, $iterations the plan's. Over the table `items`.
-- A score or an outcome that counts for nothing, or that people have not labelled, is NULL.
SELECT
    case_number,
    variant,
    coalesce(case_group, '') AS case_group,
    CASE WHEN counted AND NOT awaiting THEN counted_score END AS score,
    CASE
        WHEN counted AND NOT awaiting AND status IN ('completed', 'error') THEN passed::DOUBLE
    END AS passed
FROM items
WHERE item % $iterations = $round
ORDER BY case_number, variant_number
