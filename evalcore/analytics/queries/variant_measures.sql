-- Each variant of the run as the history has it: score (the mean over groups), pass rate, median
-- latency, cost.
CREATE OR REPLACE TEMP VIEW variant_measures AS
WITH groups AS (
    SELECT
        variant_number, variant, coalesce(case_group, '') AS name,
        fsum(score ORDER BY case_number) / nullif(count(score), 0) AS score,
        count(*) FILTER (counted) AS cases, count(*) FILTER (passed) AS passed
    FROM cases
    GROUP BY ALL
),
scores AS (
    SELECT
        variant_number, variant,
        fsum(score ORDER BY name) / nullif(count(score), 0) AS score,
        sum(cases)::BIGINT AS cases, sum(passed) / nullif(sum(cases), 0) AS pass_rate
    FROM groups
    GROUP BY ALL
),
measures AS (
    SELECT
        variant_number,
        quantile_cont(latency_ms, 0.5) AS latency,
        fsum(cost_usd ORDER BY item) AS cost
    FROM items
    GROUP BY variant_number
)
SELECT variant, cases, score, pass_rate, latency, cost
FROM scores JOIN measures USING (variant_number)
ORDER BY variant_number
