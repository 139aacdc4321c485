-- The difference of each measured case from the mean of its scores in the last $runs earlier runs.
SELECT case_number, variant, now_score - score
FROM measured_cases
JOIN (
    SELECT variant, case_id, fsum(score ORDER BY number) / count(*) AS score
    FROM past_cases
    WHERE number > (SELECT max(number) FROM past_runs) - $runs
    GROUP BY variant, case_id
) USING (variant, case_id)
WHERE measured
