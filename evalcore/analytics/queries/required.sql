-- Required assertions that were measured below their threshold, and the first of them.
WITH missed AS (
    SELECT item, variant, case_id, unnest(assertions) AS assertion
    FROM items
    WHERE status = 'completed'
)
SELECT variant, case_id, assertion.name, assertion.score, assertion.required, count(*) OVER () AS n
FROM missed
WHERE assertion.required IS NOT NULL
  AND assertion.outcome IN ('passed', 'failed')
  AND assertion.score < assertion.required - 1e-9
ORDER BY item
LIMIT 20
