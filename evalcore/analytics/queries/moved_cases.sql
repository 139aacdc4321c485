-- The cases of a comparison of two variants, those that moved first; after `pairs`.
-- {filter}: a condition on a row. $after_rank, $after_number, $after_id: where the
-- page before ended; NULL begins. $most: how many rows.
WITH ranked AS (
    SELECT
        case_number, case_id, was_state, now_state, was_passed, now_passed, was_score, now_score,
        was_latency, now_latency,
        now_score - was_score AS change,
        CASE
            WHEN was_passed AND NOT now_passed THEN 'regression'
            WHEN now_passed AND NOT was_passed THEN 'improvement'
            WHEN NOT (has_was AND has_now) THEN 'missing'
            WHEN now_score < was_score - 1e-9 THEN 'worse'
            WHEN now_score > was_score + 1e-9 THEN 'better'
            ELSE 'same'
        END AS move
    FROM pairs
),
ordered AS (
    SELECT
        *,
        list_position(
            ['regression', 'missing', 'worse', 'improvement', 'better', 'same'], move
        ) * 10 - coalesce(abs(change), 0) AS rank
    FROM ranked
)
SELECT ordered.* EXCLUDE (case_number, rank), rank, case_number
FROM ordered
WHERE {filter}
    AND ($after_rank IS NULL OR rank > $after_rank
        OR (rank = $after_rank AND (case_number, case_id) > ($after_number, $after_id)))
ORDER BY rank, case_number, case_id
LIMIT $most
