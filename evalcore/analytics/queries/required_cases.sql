-- Of the cases named in $ids: those that did not pass in some variant, or have no result there.
WITH wanted AS (
    SELECT unnest($ids::VARCHAR[]) AS case_id, unnest(range(len($ids::VARCHAR[]))) AS place
),
variants AS (
    SELECT variant, min(variant_number) AS variant_number FROM cases GROUP BY variant
),
found AS (
    SELECT case_id, variant, bool_and(passed) AS passed, bool_or(counted) AS counted
    FROM cases
    WHERE case_id IN (SELECT case_id FROM wanted)
    GROUP BY case_id, variant
)
SELECT case_id, variant, found.case_id IS NOT NULL AND found.counted AS was_run
FROM wanted
CROSS JOIN variants
LEFT JOIN found USING (case_id, variant)
WHERE NOT coalesce(found.passed, false)
ORDER BY place, variant_number
LIMIT 1000
