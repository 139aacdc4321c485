-- The most expensive work item; the first one of the plan among equals.
-- $judges: whether the costs of the assertions' own calls count.
WITH priced AS (
    SELECT
        item, variant, case_id,
        CASE WHEN $judges AND judged_usd IS NOT NULL THEN coalesce(cost_usd, 0) + judged_usd
            ELSE cost_usd END AS usd
    FROM items
)
SELECT variant, case_id, usd
FROM priced
WHERE usd IS NOT NULL
ORDER BY usd DESC, item
LIMIT 1
