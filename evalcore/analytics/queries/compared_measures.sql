-- The metrics of each candidate beside its baseline's, over the cases of `pairs` that have the metric
-- on both sides: median latency, sums of cost and tokens, mean score.
WITH sides AS (
    SELECT
        place, case_number, case_id,
        unnest([
            {'rank': 1, 'kind': 'latency', 'was': was_latency, 'now': now_latency},
            {'rank': 2, 'kind': 'cost', 'was': was_cost, 'now': now_cost},
            {'rank': 3, 'kind': 'tokens', 'was': was_tokens, 'now': now_tokens},
            {'rank': 4, 'kind': 'score', 'was': was_score, 'now': now_score}
        ], recursive := true)
    FROM pairs
    WHERE has_was AND has_now
)
SELECT
    place, kind,
    CASE kind
        WHEN 'latency' THEN median(was)
        WHEN 'score' THEN fsum(was ORDER BY case_number, case_id) / count(*)
        ELSE fsum(was ORDER BY case_number, case_id)
    END,
    CASE kind
        WHEN 'latency' THEN median(now)
        WHEN 'score' THEN fsum(now ORDER BY case_number, case_id) / count(*)
        ELSE fsum(now ORDER BY case_number, case_id)
    END,
    count(*)
FROM sides
WHERE was IS NOT NULL AND now IS NOT NULL
GROUP BY place, rank, kind
ORDER BY place, rank
