-- Gate no_drop_from_history. Of each variant: the differences from the mean of the last runs, paired by case, and what their interval needs.
WITH past AS (
    SELECT
        variant, case_id,
        fsum(score ORDER BY number) / count(*) AS score,
        any_value(cluster) AS cluster
    FROM past_cases
    WHERE number > (SELECT max(number) FROM past_runs) - $runs
    GROUP BY variant, case_id
),
pairs AS (
    SELECT
        variant_number, variant, case_number,
        CASE WHEN measured THEN now_score - score END AS d,
        CASE WHEN cluster IS NULL THEN case_id ELSE cluster END AS unit, cluster
    FROM measured_cases LEFT JOIN past USING (variant, case_id)
    UNION ALL
    SELECT variant_number, variant, NULL, NULL, NULL, NULL
    FROM past SEMI JOIN vanished_cases USING (variant, case_id)
    JOIN (SELECT DISTINCT variant_number, variant FROM measured_cases) USING (variant)
),
means AS (
    SELECT variant_number, fsum(d ORDER BY case_number) / nullif(count(d), 0) AS mean
    FROM pairs GROUP BY variant_number
),
units AS (
    SELECT variant_number, unit, fsum(d - mean ORDER BY case_number) AS total
    FROM pairs JOIN means USING (variant_number)
    WHERE d IS NOT NULL
    GROUP BY variant_number, unit, cluster IS NULL
),
totals AS (
    SELECT
        variant_number, count(*) AS clusters, fsum(total * total ORDER BY unit) AS squares,
        min(total) AS least, max(total) AS most, fsum(pow(total, 4) ORDER BY unit) AS fourth_powers
    FROM units GROUP BY variant_number
)
SELECT
    any_value(variant), count(d), count(*) FILTER (d IS NULL), any_value(mean),
    count(cluster) > 0, any_value(clusters), any_value(squares), any_value(least), any_value(most),
    any_value(fourth_powers)
FROM pairs JOIN means USING (variant_number) LEFT JOIN totals USING (variant_number)
GROUP BY variant_number
ORDER BY variant_number
