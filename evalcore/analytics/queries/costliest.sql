-- The most expensive work item; the first one of the plan among equals.
SELECT variant, case_id, cost_usd
FROM items
WHERE cost_usd IS NOT NULL
ORDER BY cost_usd DESC, item
LIMIT 1
