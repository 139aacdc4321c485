-- The mean variance of one iteration around its case's mean, over the cases that have two scores.
WITH deviations AS (
    SELECT
        case_number, variant_number,
        var_samp(counted_score ORDER BY item) AS noise,
        var_samp(passed::BIGINT ORDER BY item) FILTER (counted) AS pass_noise
    FROM items
    WHERE counted_score IS NOT NULL
    GROUP BY case_number, variant_number
)
SELECT
    fsum(noise ORDER BY case_number, variant_number) / nullif(count(noise), 0),
    fsum(pass_noise ORDER BY case_number, variant_number) / nullif(count(pass_noise), 0)
FROM deviations
