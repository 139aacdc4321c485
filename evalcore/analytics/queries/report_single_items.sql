-- All of the report's cases where each has one work item: nothing to be put together.
SELECT
    '{"id":' || to_json(case_id) || ',"group":' || coalesce(to_json(case_group), 'null')
    || ',"variant":' || to_json(variant) || ',"score":' || coalesce(to_json(score), 'null')
    || ',"passed":' || to_json(passed) || CASE WHEN list_contains(getvariable('quarantined'), case_id)
        THEN ',"quarantined":true' ELSE '' END
    || ',"items":[' || text || ']}'
FROM report_items
JOIN (SELECT *, case_number * $variants + variant_number AS item FROM cases) USING (item)
ORDER BY item
