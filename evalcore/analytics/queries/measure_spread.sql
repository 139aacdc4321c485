-- Latency, cost and tokens: how many items and units were measured, and the sum over the units of
-- (their sum − their items × the mean)²; for latency also the sums over the units of
-- (their items up to the quantile − their items × its share)² at the shares .5 and .95.
-- Units are cases, or clusters (the table `case_units`). $by_variant: whether the variants are apart;
-- else `variant_number` is 0. Sums are in the order of the plan: the order in which rows arrive
-- changes nothing.
WITH known AS (
    SELECT
        CASE WHEN $by_variant THEN variant_number ELSE 0 END AS variant_number,
        coalesce(unit, -1 - case_number) AS unit, item, latency_ms, cost_usd,
        CASE WHEN coalesce(input_tokens, output_tokens) IS NOT NULL
            THEN coalesce(input_tokens, 0)::DOUBLE + coalesce(output_tokens, 0)
        END AS tokens
    FROM items
    LEFT JOIN case_units USING (case_id)
),
quantiles AS (
    SELECT
        variant_number,
        quantile_cont(latency_ms, 0.5) AS p50, quantile_cont(latency_ms, 0.95) AS p95
    FROM known
    GROUP BY variant_number
),
unit_sums AS (
    SELECT
        variant_number, unit,
        count(latency_ms) AS latencies, fsum(latency_ms ORDER BY item) AS latency,
        count(*) FILTER (latency_ms <= p50) AS up_to_p50,
        count(*) FILTER (latency_ms <= p95) AS up_to_p95,
        count(cost_usd) AS costs, fsum(cost_usd ORDER BY item) AS cost,
        count(tokens) AS counts, fsum(tokens ORDER BY item) AS tokens
    FROM known
    JOIN quantiles USING (variant_number)
    WHERE latency_ms IS NOT NULL OR cost_usd IS NOT NULL OR tokens IS NOT NULL
    GROUP BY variant_number, unit
),
means AS (
    SELECT
        variant_number,
        fsum(latency ORDER BY unit) / nullif(sum(latencies), 0) AS latency,
        fsum(cost ORDER BY unit) / nullif(sum(costs), 0) AS cost,
        fsum(tokens ORDER BY unit) / nullif(sum(counts), 0) AS tokens
    FROM unit_sums
    GROUP BY variant_number
)
SELECT
    variant_number,
    sum(latencies)::BIGINT, count(*) FILTER (latencies > 0),
    fsum(pow(u.latency - latencies * m.latency, 2) ORDER BY unit),
    sum(costs)::BIGINT, count(*) FILTER (costs > 0),
    fsum(pow(u.cost - costs * m.cost, 2) ORDER BY unit),
    sum(counts)::BIGINT, count(*) FILTER (counts > 0),
    fsum(pow(u.tokens - counts * m.tokens, 2) ORDER BY unit),
    fsum(pow(up_to_p50 - latencies * 0.5::DOUBLE, 2) ORDER BY unit),
    fsum(pow(up_to_p95 - latencies * 0.95::DOUBLE, 2) ORDER BY unit)
FROM unit_sums AS u
JOIN means AS m USING (variant_number)
GROUP BY variant_number
