-- How many cases of each candidate are worse and better in outcome or score (no kind of $measures),
-- worse in one of $hard, and worse in any kind.
SELECT
    place,
    count(DISTINCT case_id) FILTER (worse AND NOT list_contains($measures, kind)) AS regressed,
    count(DISTINCT case_id) FILTER (worse AND list_contains($hard, kind)) AS hard_regressed,
    count(DISTINCT case_id) FILTER (better AND NOT list_contains($measures, kind)) AS improved,
    count(DISTINCT case_id) FILTER (worse) AS worse_cases
FROM differences
GROUP BY place
ORDER BY place
