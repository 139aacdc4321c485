-- The slowest work item; the first one of the plan among equals.
SELECT variant, case_id, latency_ms
FROM items
WHERE latency_ms IS NOT NULL
ORDER BY latency_ms DESC, item
LIMIT 1
