-- What sequential gates read of each case that is evaluated, in the order of the plan: the score and
-- whether it passed (mean over the variants for '' and of each variant), and pass^$k of its
-- iterations. Over the tables `items` and `cases`.
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
subjects AS (
    FROM known
    UNION ALL
    SELECT case_number, '', avg(score), avg(passed), avg(reliability)
    FROM known
    GROUP BY case_number
)
UNPIVOT subjects ON score, passed, reliability INTO NAME name VALUE number
ORDER BY case_number, variant, name
