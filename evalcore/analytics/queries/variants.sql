-- Cases per variant, in the order of the plan.
SELECT
    variant_number,
    any_value(variant) AS variant,
    count(*) FILTER (counted) AS cases,
    count(*) FILTER (passed) AS passed,
    fsum(score ORDER BY case_number) / nullif(count(score), 0) AS score
FROM cases
GROUP BY variant_number
ORDER BY variant_number
