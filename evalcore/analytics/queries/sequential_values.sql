-- What sequential gates read of each case that is evaluated, in the order of the plan: the score,
-- whether it passed, and pass^$k of its iterations, of each variant and summed over the variants
-- (''), with the number of variants in the sum. Over the tables `items` and `cases`.
WITH tried AS (
    SELECT
        case_number, variant_number,
        count(*) FILTER (counted AND status IN ('completed', 'error')) AS n,
        count(*) FILTER (passed) AS c
    FROM items
    GROUP BY case_number, variant_number
),
known AS (
    SELECT
        case_number, variant, score, passed::DOUBLE AS passed,
        CASE WHEN n < $k THEN NULL
            WHEN c < $k THEN 0.0
            ELSE list_product(list_transform(range(0, $k), i -> (c - i) / (n - i)))
        END AS reliability
    FROM cases JOIN tried USING (case_number, variant_number)
    WHERE counted
),
values AS (
    UNPIVOT known ON score, passed, reliability INTO NAME name VALUE number
)
SELECT case_number, variant, name, number, 1 AS variants FROM values
UNION ALL
SELECT case_number, '', name, sum(number), count(*) FROM values GROUP BY case_number, name
ORDER BY case_number, variant, name
