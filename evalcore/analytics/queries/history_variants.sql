-- A run's row of the history for each variant that has items: counts, measures, score.
-- Over the tables `items` and `cases`. `groups`: how many groups the score is a mean of.
WITH counted AS (
    SELECT
        variant_number,
        count(*) FILTER (status = 'completed') AS completed,
        count(*) FILTER (status = 'error') AS error,
        count(*) FILTER (status = 'cancelled') AS cancelled,
        count(*) FILTER (status = 'skipped') AS skipped,
        count(*) FILTER (status = 'completed' AND outcome = 'passed') AS passed,
        count(*) FILTER (status = 'completed' AND outcome = 'failed') AS failed,
        count(*) FILTER (status = 'completed' AND outcome = 'blocked') AS blocked,
        quantile_cont(latency_ms, 0.5) AS p50_latency_ms,
        quantile_cont(latency_ms, 0.95) AS p95_latency_ms,
        fsum(cost_usd ORDER BY item) AS cost_usd,
        fsum(judged_usd ORDER BY item) AS judge_cost_usd,
        within_64_bits(sum(input_tokens::HUGEINT)) AS input_tokens,
        within_64_bits(sum(output_tokens::HUGEINT)) AS output_tokens,
        within_64_bits(sum(cached_tokens::HUGEINT)) AS cached_tokens,
        within_64_bits(sum(cache_write_tokens::HUGEINT)) AS cache_write_tokens,
        within_64_bits(sum(cache_write_1h_tokens::HUGEINT)) AS cache_write_1h_tokens,
        within_64_bits(sum(input_audio_tokens::HUGEINT)) AS input_audio_tokens,
        within_64_bits(sum(reasoning_tokens::HUGEINT)) AS reasoning_tokens,
        within_64_bits(sum(output_audio_tokens::HUGEINT)) AS output_audio_tokens,
        within_64_bits(sum(batch_tokens::HUGEINT)) AS batch_tokens
    FROM items
    GROUP BY variant_number
),
means AS (
    SELECT
        variant_number,
        coalesce(case_group, '') AS name,
        fsum(score ORDER BY case_number) / count(score) AS score
    FROM cases
    WHERE score IS NOT NULL
    GROUP BY ALL
),
scores AS (
    SELECT variant_number, fsum(score ORDER BY name) / count(score) AS score, count(*) AS groups
    FROM means
    GROUP BY variant_number
),
passes AS (
    SELECT
        variant_number,
        count(*) FILTER (counted) AS cases,
        count(*) FILTER (passed) AS passed_cases
    FROM cases
    GROUP BY variant_number
)
SELECT counted.*, cases, passed_cases, score, groups
FROM counted
LEFT JOIN passes USING (variant_number)
LEFT JOIN scores USING (variant_number)
ORDER BY variant_number
