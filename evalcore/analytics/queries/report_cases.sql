-- The report's cases, one JSON text each, in the order of the plan.
-- $all: every case, or only those that did not pass, at most $most of them. $iterations: the
-- plan's; of several the report says how far apart they are (docs/reference/statistics.md: Wilson's
-- interval; the standard deviation of a sample, NULL for fewer than two).
WITH chosen AS (
    SELECT * FROM cases
    WHERE $all OR NOT passed
    ORDER BY case_number, variant_number
    LIMIT $most
),
-- Texts are put together rather than structs: sorting those takes five times as long.
joined AS (
    SELECT
        case_number, variant_number,
        string_agg(report_items.text, ',' ORDER BY item) AS items,
        (count(*) FILTER (items.counted))::DOUBLE AS n,
        (count(*) FILTER (items.passed AND items.counted))::DOUBLE AS c,
        count(DISTINCT items.outcome) FILTER (items.outcome IS NOT NULL) > 1 AS flaky,
        -- In an order of their own, so that the order of arrival changes nothing.
        list(items.counted_score ORDER BY item) FILTER (items.counted_score IS NOT NULL) AS scores
    FROM items
    JOIN chosen USING (case_number, variant_number)
    JOIN report_items USING (item)
    GROUP BY case_number, variant_number
),
measured AS (
    SELECT
        *,
        list_aggregate(scores, 'fsum') / len(scores) AS mean,
        1.959963984540054 AS z
    FROM joined
),
spread AS (
    SELECT
        case_number, variant_number, items,
        CASE WHEN $iterations > 1 THEN ',"spread":' || to_json({
            'iterations': n::BIGINT,
            'passed': c::BIGINT,
            'flaky': flaky,
            'min': list_min(scores),
            'max': list_max(scores),
            'mean': mean,
            'stdev': CASE WHEN len(scores) > 1 THEN sqrt(
                list_aggregate(list_transform(scores, s -> (s - mean) * (s - mean)), 'fsum')
                / (len(scores) - 1)
            ) END,
            'pass_rate': CASE WHEN n > 0 THEN {
                'value': c / n,
                'low': CASE WHEN c = 0 THEN 0.0 ELSE greatest(0.0,
                    (c / n + z * z / (2 * n)
                     - z * sqrt(c / n * (1 - c / n) / n + z * z / (4 * n * n))) / (1 + z * z / n)
                ) END,
                'high': CASE WHEN c = n THEN 1.0 ELSE least(1.0,
                    (c / n + z * z / (2 * n)
                     + z * sqrt(c / n * (1 - c / n) / n + z * z / (4 * n * n))) / (1 + z * z / n)
                ) END,
                'method': 'wilson'
            } END
        })::VARCHAR ELSE '' END AS spread
    FROM measured
)
SELECT
    '{"id":' || to_json(case_id) || ',"group":' || coalesce(to_json(case_group), 'null')
    || ',"variant":' || to_json(chosen.variant) || ',"score":' || coalesce(to_json(score), 'null')
    || ',"passed":' || to_json(passed) || CASE WHEN list_contains(getvariable('quarantined'), case_id)
        THEN ',"quarantined":true' ELSE '' END
    || spread.spread || ',"items":[' || spread.items || ']}'
FROM chosen JOIN spread USING (case_number, variant_number)
ORDER BY case_number, variant_number
