-- `measure_spread` where each item is a case of its own.
SELECT
    count(latency_ms), count(latency_ms), var_pop(latency_ms) * count(latency_ms),
    count(cost_usd), count(cost_usd), var_pop(cost_usd) * count(cost_usd)
FROM items
