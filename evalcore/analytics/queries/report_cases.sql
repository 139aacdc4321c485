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
        case_number,
        variant_number,
        list({
            'iteration': iteration,
            'status': status,
            'outcome': outcome,
            'score': items.score,
            'error': error,
            'reason': reason,
            'output': output[:$output_characters],
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
                'actual': a.actual, 'expected': a.expected, 'message': a.message
            })
        } ORDER BY item) AS items
    FROM items
    SEMI JOIN chosen USING (case_number, variant_number)
    GROUP BY case_number, variant_number
)
SELECT to_json({
    'id': case_id, 'group': case_group, 'variant': variant,
    'score': score, 'passed': passed, 'items': items
})::VARCHAR
FROM chosen JOIN details USING (case_number, variant_number)
ORDER BY case_number, variant_number
