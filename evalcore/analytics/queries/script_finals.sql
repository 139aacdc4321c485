-- The final score of each variant: the plain mean of its suites.
WITH groups AS (
    SELECT
        variant, variant_number, min(case_number) AS first,
        fsum(score ORDER BY case_number) / count(score) AS score
    FROM cases
    GROUP BY variant, variant_number, case_group
)
SELECT variant, fsum(score ORDER BY first) / count(score) AS score
FROM groups
GROUP BY variant, variant_number
ORDER BY variant_number
