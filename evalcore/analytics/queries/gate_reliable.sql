-- Gate reliable. The mean of pass^k over the cases, and what its interval needs.
WITH tried AS (
    SELECT
        case_number, variant_number, count(*) AS n, count(*) FILTER (passed) AS c
    FROM items
    WHERE counted AND status IN ('completed', 'error')
    GROUP BY case_number, variant_number
),
attempts AS (
    SELECT
        case_number, variant_number, coalesce(n, 0) AS n, coalesce(c, 0) AS c,
        coalesce(unit, -1 - case_number) AS unit
    FROM cases
    LEFT JOIN tried USING (case_number, variant_number)
    LEFT JOIN case_units USING (case_id)
    WHERE counted
),
known AS (
    SELECT
        case_number, variant_number, unit,
        CASE WHEN c < $k THEN 0.0
            ELSE list_product(list_transform(range(0, $k), i -> (c - i) / (n - i)))
        END AS value
    FROM attempts
    WHERE n >= $k
),
means AS (
    SELECT fsum(value ORDER BY case_number, variant_number) / count(*) AS mean, count(*) AS cases
    FROM known
),
totals AS (
    SELECT unit, fsum(value - mean ORDER BY case_number, variant_number) AS total
    FROM known CROSS JOIN means
    GROUP BY unit
)
SELECT
    (SELECT count(*) FROM attempts), any_value(cases), any_value(mean), count(*),
    fsum(total * total ORDER BY unit), min(total), max(total), fsum(pow(total, 4) ORDER BY unit)
FROM totals CROSS JOIN means
