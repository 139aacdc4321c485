-- The run's score: the plain mean over groups of the plain mean over their cases and variants.
WITH groups AS (
    SELECT
        coalesce(case_group, '') AS name,
        fsum(score ORDER BY case_number, variant_number) / count(score) AS score
    FROM cases
    WHERE score IS NOT NULL
    GROUP BY ALL
)
SELECT fsum(score ORDER BY name) / count(score) AS score FROM groups
