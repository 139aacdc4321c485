-- The suites of a script suite: the plain mean of their tests, by variant, in the file's order.
SELECT variant, case_group, fsum(score ORDER BY case_number) / count(score) AS score
FROM cases
GROUP BY variant, variant_number, case_group
ORDER BY variant_number, min(case_number)
