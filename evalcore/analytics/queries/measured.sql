-- What comparisons need of each case × variant: means over its iterations. $iterations: the plan's.
-- A case without any item that counts (skipped, excluded) is not there: it is missing.
CREATE OR REPLACE TEMP TABLE measured AS
WITH counted_items AS (
    SELECT
        case_number, variant_number, item, passed, counted_score, latency_ms, cost_usd,
        status = 'error' AS errored,
        CASE WHEN input_tokens IS NOT NULL OR output_tokens IS NOT NULL
            THEN coalesce(input_tokens, 0) + coalesce(output_tokens, 0)
        END::DOUBLE AS tokens
    FROM items
    WHERE counted AND status IN ('completed', 'error')
),
means AS (
    SELECT
        case_number, variant_number,
        count(*) AS run_count,
        count(*) FILTER (passed) AS pass_count,
        bool_or(errored) AS errored,
        fsum(counted_score ORDER BY item) / nullif(count(counted_score), 0) AS score,
        min(counted_score) AS lowest,
        max(counted_score) AS highest,
        fsum(latency_ms ORDER BY item) / nullif(count(latency_ms), 0) AS latency_ms,
        fsum(cost_usd ORDER BY item) / nullif(count(cost_usd), 0) AS cost_usd,
        fsum(tokens ORDER BY item) / nullif(count(tokens), 0) AS tokens
    FROM counted_items
    WHERE $iterations > 1
    GROUP BY case_number, variant_number
    UNION ALL
    -- One item is its own mean: ordered sums of single rows take longer than everything else.
    SELECT
        case_number, variant_number, 1, passed::BIGINT, errored,
        counted_score, counted_score, counted_score, latency_ms, cost_usd, tokens
    FROM counted_items
    WHERE $iterations = 1
)
SELECT cases.variant, cases.case_id, cases.passed AND cases.counted AS passed, means.*
FROM cases
JOIN means USING (case_number, variant_number)
