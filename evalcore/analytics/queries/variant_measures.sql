-- Each variant of the run as the history has it: score (the mean over groups), pass rate, median
-- latency, cost. Over the table `cases` and the view `variant_figures`.
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
)
SELECT variant, cases, score, pass_rate, p50_latency_ms AS latency, total_cost_usd AS cost
FROM scores JOIN variant_figures USING (variant_number)
ORDER BY variant_number
