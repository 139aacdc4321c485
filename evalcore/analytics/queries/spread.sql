-- What intervals of score and pass rate need where each case stands for itself, by variant and
-- group. `spread_units.sql` is the same for clusters and for cases with several variants.
-- Scores are counted in units of a hundred millionth, so that sums are exact in any order of the rows.
-- `units`: scored cases, `n`: their scores, `s`: the sum, `nn`, `ns`, `ss`: the sums over the units
-- of n², n·s, s²; then the same of the cases that count (`m`) and of those that passed (`p`); then
-- the least and the greatest mean of a unit, and the sums of the powers of what each lacks to 1.
WITH scores AS (
    SELECT
        variant_number,
        coalesce(case_group, '') AS name,
        round(score * 100000000)::BIGINT::HUGEINT AS s,
        counted::BIGINT AS m,
        passed::BIGINT AS p,
        score,
        1 - score AS lack
    FROM cases
)
SELECT
    variant_number, name,
    count(s) AS units, count(s)::HUGEINT AS n, sum(s) AS s,
    count(s)::HUGEINT AS nn, sum(s) AS ns, sum(s * s) AS ss,
    sum(m)::BIGINT AS counted_units, sum(m)::HUGEINT AS m, sum(p)::HUGEINT AS p,
    sum(m)::HUGEINT AS mm, sum(p)::HUGEINT AS mp, sum(p)::HUGEINT AS pp,
    min(score) AS least, max(score) AS most,
    fsum(lack ORDER BY lack) AS lack1, fsum(pow(lack, 2) ORDER BY lack) AS lack2,
    fsum(pow(lack, 3) ORDER BY lack) AS lack3, fsum(pow(lack, 4) ORDER BY lack) AS lack4
FROM scores
GROUP BY variant_number, name
ORDER BY variant_number, name
