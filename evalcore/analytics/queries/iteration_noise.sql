-- The mean variance of one iteration around its case's mean, over the cases that have two scores.
WITH deviations AS (
    SELECT
        case_number, variant_number,
        var_samp(counted_score ORDER BY item) AS noise
    FROM items
    WHERE counted_score IS NOT NULL
    GROUP BY case_number, variant_number
)
SELECT fsum(noise ORDER BY case_number, variant_number) / nullif(count(noise), 0)
FROM deviations
