-- The rows of some work items, in their order, with long outputs cut. The variable `files` holds
-- the Parquet parts; {filter}: a condition on a row. $most: characters of an output.
-- `output_characters` is NULL where the whole output stands in a blob.
SELECT
    item, case_id, case_group, variant, target, iteration, status, reason, outcome, score,
    threshold, error.kind AS error_kind, error.message AS error_message,
    output[:$most] AS output,
    CASE WHEN output_ref IS NULL THEN length(output) END AS output_characters,
    output_ref, evidence, evidence_ref, latency_ms, ttft_ms, cost_usd, input_tokens, output_tokens,
    attempts, scores, assertions,
    cached_tokens, cache_write_tokens, reasoning_tokens, finish_reason
FROM result_rows(getvariable('files'))
WHERE {filter}
ORDER BY item
