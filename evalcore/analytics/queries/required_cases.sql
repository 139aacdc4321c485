-- Of the cases named in $ids: those that did not pass in some variant, or have no result there.
-- Variants whose target a case is not for do not count.
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
),
unplanned AS (
    SELECT case_id, variant
    FROM items
    WHERE case_id IN (SELECT case_id FROM wanted)
    GROUP BY case_id, variant
    HAVING bool_and(left_out AND NOT stopped)
)
SELECT case_id, variant, found.case_id IS NOT NULL AND found.counted AS was_run
FROM wanted
CROSS JOIN variants
LEFT JOIN found USING (case_id, variant)
ANTI JOIN unplanned USING (case_id, variant)
WHERE NOT coalesce(found.passed, false)
ORDER BY place, variant_number
LIMIT 1000
