-- Latency and cost: how many items and cases were measured, their sums, and the sum over the cases
-- of (their sum − their items × the mean)².
WITH means AS (SELECT avg(latency_ms) AS latency, avg(cost_usd) AS cost FROM items),
unit_sums AS (
    SELECT
        count(latency_ms) AS latencies,
        sum(latency_ms - means.latency) AS latency,
        count(cost_usd) AS costs,
        sum(cost_usd - means.cost) AS cost
    FROM items CROSS JOIN means
    WHERE latency_ms IS NOT NULL OR cost_usd IS NOT NULL
    GROUP BY case_number
)
SELECT
    sum(latencies)::BIGINT, count(*) FILTER (latencies > 0), sum(latency * latency),
    sum(costs)::BIGINT, count(*) FILTER (costs > 0), sum(cost * cost)
FROM unit_sums
