-- How many differences of each kind each candidate has.
SELECT
    place, kind,
    count(*) FILTER (worse) AS regressions,
    count(*) FILTER (better) AS improvements,
    count(*) FILTER (worse AND NOT settled) AS unsettled,
    count(*) FILTER (missing_from IS NOT NULL) AS missing
FROM differences
GROUP BY place, kind
ORDER BY place, kind
