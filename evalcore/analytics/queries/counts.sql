-- Work items by lifecycle and outcome, and the measures over all of them, by the names of `Summary`.
SELECT
    {
        'planned': count(*),
        'completed': count(*) FILTER (status = 'completed'),
        'error': count(*) FILTER (status = 'error'),
        'cancelled': count(*) FILTER (status = 'cancelled'),
        'skipped': count(*) FILTER (status = 'skipped'),
        'passed': count(*) FILTER (status = 'completed' AND outcome = 'passed'),
        'failed': count(*) FILTER (status = 'completed' AND outcome = 'failed'),
        'blocked': count(*) FILTER (status = 'completed' AND outcome = 'blocked')
    } AS counts,
    coalesce(count(*) = count(DISTINCT item) AND min(item) = 0 AND max(item) = $items - 1
        AND count(*) = $items, false) AS each_item_once,
    count(*) FILTER (awaiting) AS awaiting_items,
    count(*) FILTER (refused) AS refused,
    coalesce(sum(asserted), 0) AS asserted,
    coalesce(sum(asserted_errors), 0) AS asserted_errors,
    coalesce(sum(unjudged), 0) AS unjudged,
    sum(len(missed)) AS missed,
    coalesce(sum(required_measured) = 0 AND sum(required_open) > 0, false) AS required_unmeasured,
    count(latency_ms) AS measured_latency,
    avg(latency_ms) AS avg_latency_ms,
    quantile_cont(latency_ms, 0.5) AS p50_latency_ms,
    quantile_cont(latency_ms, 0.95) AS p95_latency_ms,
    count(*) FILTER (latency_ms IS NULL AND NOT left_out) AS unmeasured_latency,
    count(*) FILTER (cost_usd IS NULL AND NOT left_out) AS unmeasured_cost,
    count(*) FILTER (
        (input_tokens IS NULL OR output_tokens IS NULL) AND NOT left_out
    ) AS unmeasured_tokens,
    fsum(cost_usd ORDER BY item) AS total_cost_usd,
    fsum(cost_usd ORDER BY item) / count(cost_usd) AS avg_cost_usd,
    fsum(judged_usd ORDER BY item) AS judge_cost_usd,
    sum(coalesce(input_tokens, 0)::HUGEINT + coalesce(output_tokens, 0))
        FILTER (input_tokens IS NOT NULL OR output_tokens IS NOT NULL) AS total_tokens,
    {
        'input_tokens': sum(input_tokens),
        'output_tokens': sum(output_tokens),
        'cached_tokens': sum(cached_tokens),
        'cache_write_tokens': sum(cache_write_tokens),
        'cache_write_1h_tokens': sum(cache_write_1h_tokens),
        'input_audio_tokens': sum(input_audio_tokens),
        'reasoning_tokens': sum(reasoning_tokens),
        'output_audio_tokens': sum(output_audio_tokens),
        'batch_tokens': sum(batch_tokens)
    } AS tokens,
    list_sort(list_distinct(flatten(list(unpriced_models)))) AS unpriced,
    histogram(finish_reason) AS finish_reasons
FROM items
