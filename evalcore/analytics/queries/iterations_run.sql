-- How many iterations were executed, and of how many cases × variants.
SELECT iterations, count(*) AS cases
FROM (
    SELECT count(*) FILTER (status IN ('completed', 'error')) AS iterations
    FROM items
    GROUP BY case_number, variant_number
)
GROUP BY iterations
ORDER BY iterations DESC
