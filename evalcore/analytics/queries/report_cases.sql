-- The report's cases, one JSON text each, in the order of the plan.
-- $all: every case, or only those that did not pass, at most $most of them.
WITH chosen AS (
    SELECT * FROM cases
    WHERE $all OR NOT passed
    ORDER BY case_number, variant_number
    LIMIT $most
),
-- Texts are put together rather than structs: sorting those takes five times as long.
joined AS (
    SELECT case_number, variant_number, string_agg(report_items.text, ',' ORDER BY item) AS items
    FROM items
    JOIN chosen USING (case_number, variant_number)
    JOIN report_items USING (item)
    GROUP BY case_number, variant_number
)
SELECT
    '{"id":' || to_json(case_id) || ',"group":' || coalesce(to_json(case_group), 'null')
    || ',"variant":' || to_json(chosen.variant) || ',"score":' || coalesce(to_json(score), 'null')
    || ',"passed":' || to_json(passed) || ',"items":[' || joined.items || ']}'
FROM chosen JOIN joined USING (case_number, variant_number)
ORDER BY case_number, variant_number
