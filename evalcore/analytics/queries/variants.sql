-- Cases per variant, in the order of the plan, with its median latency and its cost, and whether
-- anything was planned for it. After `variant_figures`.
WITH figures AS (
    SELECT variant_number, any_value(p50_latency_ms) AS p50_latency_ms,
        any_value(total_cost_usd) AS total_cost_usd
    FROM variant_figures
    GROUP BY variant_number
),
planned AS (
    SELECT variant_number, bool_or(NOT left_out OR stopped) AS is_planned
    FROM items
    GROUP BY variant_number
)
SELECT
    variant_number,
    any_value(variant) AS variant,
    count(*) FILTER (counted) AS cases,
    count(*) FILTER (passed) AS passed,
    fsum(score ORDER BY case_number) / nullif(count(score), 0) AS score,
    any_value(p50_latency_ms), any_value(total_cost_usd),
    count(*) FILTER (counted) > 0 OR coalesce(any_value(is_planned), false)
FROM cases
LEFT JOIN figures USING (variant_number)
LEFT JOIN planned USING (variant_number)
GROUP BY variant_number
ORDER BY variant_number
