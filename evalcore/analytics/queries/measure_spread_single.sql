-- `measure_spread` where each item is a unit of its own.
WITH known AS (
    SELECT
        CASE WHEN $by_variant THEN variant_number ELSE 0 END AS variant_number,
        latency_ms, cost_usd,
        CASE WHEN coalesce(input_tokens, output_tokens) IS NOT NULL
            THEN coalesce(input_tokens, 0)::DOUBLE + coalesce(output_tokens, 0)
        END AS tokens
    FROM items
)
SELECT
    variant_number,
    count(latency_ms), count(latency_ms), var_pop(latency_ms) * count(latency_ms),
    count(cost_usd), count(cost_usd), var_pop(cost_usd) * count(cost_usd),
    count(tokens), count(tokens), var_pop(tokens) * count(tokens),
    count(latency_ms) * 0.25::DOUBLE, count(latency_ms) * 0.0475::DOUBLE
FROM known
GROUP BY variant_number
