-- What the report says of each work item, one JSON text each. The variables `files`,
-- `output_characters`, `passed_outputs` and `passed_texts` hold the Parquet parts, how much of an
-- output is shown, whether those of passed items are, and whether the beginning of an output is
-- repeated in each assertion that passed.
CREATE OR REPLACE TEMP VIEW report_items AS
SELECT
    item,
    to_json({
        'iteration': iteration,
        'status': status,
        'outcome': outcome,
        'score': score,
        'error': error,
        'reason': reason,
        'finish_reason': finish_reason,
        'output': CASE WHEN outcome = 'passed' AND NOT getvariable('passed_outputs') THEN NULL
            ELSE output[:getvariable('output_characters')] END,
        -- Of the blocks that assertions name, by name; large evidence stands elsewhere.
        'outputs': CASE WHEN evidence IS NOT NULL
            AND (outcome <> 'passed' OR getvariable('passed_outputs'))
            AND len(list_filter(assertions, a -> a.block IS NOT NULL)) > 0
            THEN map_from_entries(list_transform(
                list_sort(list_distinct(list_transform(assertions, a -> a.block))),
                name -> {
                    'k': name,
                    'v': block_text(evidence, name)[:getvariable('output_characters')]
                }
            )) END,
        'metrics': {
            'latency_ms': latency_ms, 'cost_usd': cost_usd,
            'input_tokens': input_tokens, 'output_tokens': output_tokens,
            'cached_tokens': cached_tokens, 'cache_write_tokens': cache_write_tokens,
            'cache_write_1h_tokens': cache_write_1h_tokens,
            'input_audio_tokens': input_audio_tokens, 'reasoning_tokens': reasoning_tokens,
            'output_audio_tokens': output_audio_tokens, 'batch_tokens': batch_tokens,
            'judge_cost_usd': list_sum(list_transform(assertions, a -> a.cost_usd))
        },
        'scores': list_transform(
            coalesce(scores, []),
            s -> {'name': s.name, 'value': s.value, 'raw_value': s.raw, 'error': s.error}
        ),
        'assertions': list_transform(coalesce(assertions, []), a -> {
            'name': a.name, 'type': a.type, 'block': a.block, 'score': a.score,
            'outcome': a.outcome, 'weight': a.weight, 'required': a.required,
            -- An assertion that passed looked at the output, or at its block's, unless it says so.
            'actual': coalesce(a.actual, CASE
                WHEN a.outcome = 'passed' AND getvariable('passed_texts') THEN beginning(
                    CASE WHEN a.block IS NULL THEN output ELSE block_text(evidence, a.block) END
                ) END),
            'expected': a.expected, 'message': coalesce(a.message, ''),
            'details': a.details
        })
    })::VARCHAR AS text
FROM result_rows(getvariable('files'))
