-- A run's rows as they are handed to others (docs/reference/report.md), in the plan's order.
-- The variable `files` holds the Parquet parts in the order of their shards. $suite: its name;
-- $folder: the run's prefix in the store; $pilot, $shard_size, $items_per_case, $iterations: the
-- plan's, $round_shards: the shards of an iteration, 0 if the plan is not by round. The
-- table `case_inputs` has the inputs of the plan's cases by number.
SELECT
    strftime(ended_at, '%Y-%m-%dT%H:%M:%S.%fZ') AS timestamp,
    $suite AS suite,
    case_id AS test_id,
    target,
    variant,
    iteration,
    score,
    CASE
        WHEN outcome = 'passed' THEN 'pass'
        WHEN outcome = 'failed' THEN 'fail'
        WHEN outcome = 'blocked' THEN 'blocked'
        WHEN status = 'error' THEN 'error'
        ELSE 'skip'
    END AS verdict,
    status,
    list_transform(coalesce(assertions, []), a -> {
        'name': a.name,
        'type': a.type,
        'block': a.block,
        'score': a.score,
        'weight': a.weight,
        'verdict': CASE a.outcome WHEN 'passed' THEN 'pass' WHEN 'failed' THEN 'fail'
            ELSE a.outcome END,
        'required': a.required,
        -- What a grader found of its own stands in place of the one sentence.
        'assertions': CASE WHEN json_array_length(a.details, '$.assertions') > 0
            THEN list_transform(from_json(a.details -> '$.assertions', '["JSON"]'), one -> {
                'text': one ->> '$.text',
                'passed': (one ->> '$.passed')::BOOLEAN,
                'evidence': one ->> '$.evidence'
            })
            ELSE [{
                'text': coalesce(a.expected, a.name),
                'passed': a.outcome = 'passed',
                'evidence': coalesce(nullif(a.message, ''), a.actual)
            }]
        END,
        'details': {
            'block': a.block, 'expected': a.expected, 'actual': a.actual,
            'message': coalesce(a.message, ''), 'cost_usd': a.cost_usd,
            'grader': a.details
        },
        'token_usage': CASE WHEN json_exists(a.details, '$.token_usage') THEN {
            'input': TRY_CAST(a.details ->> '$.token_usage.input' AS BIGINT),
            'output': TRY_CAST(a.details ->> '$.token_usage.output' AS BIGINT)
        } END,
        'duration_ms': a.latency_ms
    }) AS scores,
    error.message AS error,
    CASE
        WHEN status = 'error' AND error.kind = 'workspace' THEN 'setup'
        WHEN status = 'error' THEN 'execution'
        WHEN status <> 'completed' THEN 'limit'
        WHEN len(list_filter(assertions, a -> a.outcome IN ('error', 'blocked'))) > 0 THEN 'grading'
    END AS failure_stage,
    CASE
        WHEN status = 'error' THEN error.kind
        WHEN status <> 'completed' THEN coalesce(reason, status)
        ELSE list_transform(
            list_filter(assertions, a -> a.outcome IN ('error', 'blocked')),
            a -> a.name || ': ' || coalesce(nullif(a.message, ''), a.outcome)
        )[1]
    END AS failure_reason,
    {
        'results': $folder || 'results/' || lpad((
            CASE
                WHEN $round_shards > 0 THEN
                    (item % $iterations) * $round_shards
                    + (item // $items_per_case) // ($shard_size * $iterations // $items_per_case)
                WHEN $pilot = 0 THEN item // $shard_size WHEN item < $pilot THEN 0
            ELSE 1 + (item - $pilot) // $shard_size END
        )::VARCHAR, 5, '0') || '.parquet',
        'output': 'blobs/' || output_ref[:2] || '/' || output_ref,
        'evidence': 'blobs/' || evidence_ref[:2] || '/' || evidence_ref,
        'workspace': json_extract_string(evidence, '$.details.workspace')
    } AS artifacts,
    case_group AS "group",
    input,
    output,
    {
        'latency_ms': latency_ms, 'ttft_ms': ttft_ms, 'cost_usd': cost_usd,
        'input_tokens': input_tokens, 'output_tokens': output_tokens,
        'cached_tokens': cached_tokens, 'cache_write_tokens': cache_write_tokens,
        'cache_write_1h_tokens': cache_write_1h_tokens,
        'input_audio_tokens': input_audio_tokens, 'reasoning_tokens': reasoning_tokens,
        'output_audio_tokens': output_audio_tokens, 'batch_tokens': batch_tokens,
        'judge_cost_usd': list_sum(list_transform(assertions, a -> a.cost_usd)),
        'scorers': list_transform(coalesce(parts.scores, []), s -> {'name': s.name, 'value': s.value})
    } AS metrics,
    coalesce(tags, []) AS tags,
    finish_reason
FROM result_rows(getvariable('files')) AS parts
LEFT JOIN case_inputs ON case_inputs.case_number = item // $items_per_case
ORDER BY item
