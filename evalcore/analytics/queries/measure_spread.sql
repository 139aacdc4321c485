-- Latency and cost: how many items and cases were measured, and the sum over the cases of
-- (their sum − their items × the mean)². Sums are in the order of the plan: the order in which
-- rows arrive changes nothing.
WITH unit_sums AS (
    SELECT
        case_number,
        count(latency_ms) AS latencies,
        fsum(latency_ms ORDER BY item) AS latency,
        count(cost_usd) AS costs,
        fsum(cost_usd ORDER BY item) AS cost
    FROM items
    WHERE latency_ms IS NOT NULL OR cost_usd IS NOT NULL
    GROUP BY case_number
),
means AS (
    SELECT
        fsum(latency ORDER BY case_number) / nullif(sum(latencies), 0) AS latency,
        fsum(cost ORDER BY case_number) / nullif(sum(costs), 0) AS cost
    FROM unit_sums
),
deviations AS (
    SELECT
        case_number, latencies, costs,
        pow(unit_sums.latency - latencies * means.latency, 2) AS latency,
        pow(unit_sums.cost - costs * means.cost, 2) AS cost
    FROM unit_sums CROSS JOIN means
)
SELECT
    sum(latencies)::BIGINT, count(*) FILTER (latencies > 0), fsum(latency ORDER BY case_number),
    sum(costs)::BIGINT, count(*) FILTER (costs > 0), fsum(cost ORDER BY case_number)
FROM deviations
