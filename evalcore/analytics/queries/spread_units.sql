-- What intervals need where values come in units: clusters, or cases with several variants.
-- The columns mean what they mean in `spread.sql`. The table `case_units` has the clusters.
-- $by_variant: whether the variants are apart; else `variant_number` is 0.
WITH unit_sums AS (
    SELECT
        CASE WHEN $by_variant THEN variant_number ELSE 0 END AS variant_number,
        coalesce(case_group, '') AS name,
        coalesce(unit, -1 - case_number) AS unit,
        count(score)::HUGEINT AS n,
        coalesce(sum(round(score * 100000000)::BIGINT), 0)::HUGEINT AS s,
        count(*) FILTER (counted)::HUGEINT AS m,
        count(*) FILTER (passed)::HUGEINT AS p,
        fsum(score ORDER BY score) / count(score) AS score,
        1 - fsum(score ORDER BY score) / count(score) AS lack
    FROM cases
    LEFT JOIN case_units USING (case_id)
    GROUP BY ALL
)
SELECT
    variant_number, name,
    count(*) FILTER (n > 0) AS units, sum(n) AS n, sum(s) AS s,
    sum(n * n) AS nn, sum(n * s) AS ns, sum(s * s) AS ss,
    count(*) FILTER (m > 0) AS counted_units, sum(m) AS m, sum(p) AS p,
    sum(m * m) AS mm, sum(m * p) AS mp, sum(p * p) AS pp,
    min(score) AS least, max(score) AS most,
    fsum(lack ORDER BY lack) AS lack1, fsum(pow(lack, 2) ORDER BY lack) AS lack2,
    fsum(pow(lack, 3) ORDER BY lack) AS lack3, fsum(pow(lack, 4) ORDER BY lack) AS lack4
FROM unit_sums
GROUP BY variant_number, name
ORDER BY variant_number, name
