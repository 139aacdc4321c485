-- The cases that both sides measured by cells of 1/$grid of their two scores: how many, and the id
-- of the first; the least frequent cells last. After `pairs`.
SELECT
    round(was_score * $grid)::INTEGER AS was_cell,
    round(now_score * $grid)::INTEGER AS now_cell,
    was_cell / $grid,
    now_cell / $grid,
    count(*) AS cases,
    min(case_id)
FROM pairs
WHERE was_score IS NOT NULL AND now_score IS NOT NULL
GROUP BY was_cell, now_cell
ORDER BY cases DESC, was_cell, now_cell
