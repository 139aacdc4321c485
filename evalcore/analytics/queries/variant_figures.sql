-- Median latency and total cost of each variant, as `counts.sql` has them of all items; null where
-- nothing is measured. Over the table `items`.
CREATE OR REPLACE TEMP VIEW variant_figures AS
SELECT
    variant_number,
    quantile_cont(latency_ms, 0.5) AS p50_latency_ms,
    fsum(cost_usd ORDER BY item) AS total_cost_usd
FROM items
GROUP BY variant_number
