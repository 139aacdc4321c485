-- The report's cases, one JSON text each, in the order of the plan.
-- $all: every case, or only those that did not pass, at most $most of them.
WITH chosen AS (
    SELECT * FROM cases
    WHERE $all OR NOT passed
    ORDER BY case_number, variant_number
    LIMIT $most
),
details AS (
    SELECT
        item,
        to_json({
            'iteration': iteration,
            'status': status,
            'outcome': outcome,
            'score': score,
            'error': error,
            'reason': reason,
            'output': CASE WHEN outcome = 'passed' THEN NULL ELSE output[:$output_characters] END,
            'metrics': {
                'latency_ms': latency_ms, 'cost_usd': cost_usd,
                'input_tokens': input_tokens, 'output_tokens': output_tokens
            },
            'scores': list_transform(
                coalesce(scores, []),
                s -> {'name': s.name, 'value': s.value, 'raw_value': s.raw}
            ),
            'assertions': list_transform(coalesce(assertions, []), a -> {
                'name': a.name, 'type': a.type, 'block': a.block, 'score': a.score,
                'outcome': a.outcome, 'weight': a.weight, 'required': a.required,
                'actual': a.actual, 'expected': a.expected, 'message': coalesce(a.message, '')
            })
        })::VARCHAR AS text
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
),
-- Texts are put together rather than structs: sorting those takes five times as long.
joined AS (
    SELECT case_number, variant_number, string_agg(details.text, ',' ORDER BY item) AS items
    FROM items
    JOIN chosen USING (case_number, variant_number)
    JOIN details USING (item)
    GROUP BY case_number, variant_number
)
SELECT
    '{"id":' || to_json(case_id) || ',"group":' || coalesce(to_json(case_group), 'null')
    || ',"variant":' || to_json(chosen.variant) || ',"score":' || coalesce(to_json(score), 'null')
    || ',"passed":' || to_json(passed) || ',"items":[' || joined.items || ']}'
FROM chosen JOIN joined USING (case_number, variant_number)
ORDER BY case_number, variant_number
