-- The runs $run_ids (oldest first) by variant, numbered from 1.
WITH numbered AS (
    SELECT unnest($run_ids::VARCHAR[]) AS run_id, unnest(range(1, len($run_ids::VARCHAR[]) + 1)) AS number
)
SELECT
    number::INTEGER AS number, run_id, variant, cases, score, pass_rate,
    p50_latency_ms AS latency, cost_usd AS cost
FROM runs JOIN numbered USING (run_id)
WHERE suite = $suite
ORDER BY variant, number
