-- The first regressions, improvements and missing cases of each candidate, at most $most of each;
-- those of $measures (latency, cost, tokens) apart.
WITH kinds AS (
    SELECT unnest(['assertion', 'latency', 'cost', 'tokens', 'score', 'missing']) AS kind,
        unnest(range(6)) AS rank
),
lists AS (
    SELECT unnest(
        ['regressions', 'improvements', 'missing', 'worse_measures', 'better_measures']
    ) AS list
)
SELECT list, place, case_id, kind, was, now, missing_from, p, settled
FROM differences
JOIN kinds USING (kind)
JOIN lists ON CASE list
    WHEN 'regressions' THEN worse AND NOT list_contains($measures, kind)
    WHEN 'improvements' THEN better AND NOT list_contains($measures, kind)
    WHEN 'worse_measures' THEN worse AND list_contains($measures, kind)
    WHEN 'better_measures' THEN better AND list_contains($measures, kind)
    ELSE missing_from IS NOT NULL
END
QUALIFY row_number() OVER (PARTITION BY list, place ORDER BY case_number, case_id, rank) <= $most
ORDER BY list, place, case_number, case_id, rank
