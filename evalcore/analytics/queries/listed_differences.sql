-- The first regressions, improvements and missing cases of each candidate, at most $most of each;
-- those of $measures (latency, cost, tokens) apart.
WITH kinds AS (
    SELECT unnest(['assertion', 'latency', 'cost', 'tokens', 'score', 'missing']) AS kind,
        unnest(range(6)) AS rank
),
lists AS (
    SELECT unnest(
        ['regression', 'improvement', 'missing', 'worse measure', 'better measure']
    ) AS list
)
SELECT list, place, case_id, kind, was, now, missing_from, p, settled
FROM differences
JOIN kinds USING (kind)
JOIN lists ON CASE list
    WHEN 'regression' THEN worse AND NOT list_contains($measures, kind)
    WHEN 'improvement' THEN better AND NOT list_contains($measures, kind)
    WHEN 'worse measure' THEN worse AND list_contains($measures, kind)
    WHEN 'better measure' THEN better AND list_contains($measures, kind)
    ELSE missing_from IS NOT NULL
END
QUALIFY row_number() OVER (PARTITION BY list, place ORDER BY case_number, case_id, rank) <= $most
ORDER BY list, place, case_number, case_id, rank
