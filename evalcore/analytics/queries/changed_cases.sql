-- How many cases of each candidate are worse in any kind, worse in one of $hard, and better in any.
SELECT
    place,
    count(DISTINCT case_id) FILTER (worse) AS regressed,
    count(DISTINCT case_id) FILTER (worse AND list_contains($hard, kind)) AS hard_regressed,
    count(DISTINCT case_id) FILTER (better) AS improved
FROM differences
GROUP BY place
ORDER BY place
