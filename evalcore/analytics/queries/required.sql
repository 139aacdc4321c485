-- Required assertions that were measured below their threshold: how many, and the first of them.
WITH found AS (
    SELECT
        item, variant, case_id,
        unnest(missed) AS assertion, generate_subscripts(missed, 1) AS place
    FROM items
    WHERE len(missed) > 0
)
SELECT variant, case_id, assertion.name, assertion.score, assertion.required, count(*) OVER () AS n
FROM found
ORDER BY item, place
LIMIT 20
