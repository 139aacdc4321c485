-- How often each combination of passes over iterations occurs among the pairs of each candidate.
SELECT place, was_pass_count, was_run, now_pass_count, now_run, count(*) AS n
FROM pairs
WHERE has_was AND has_now AND (was_run > 1 OR now_run > 1)
GROUP BY ALL
ORDER BY ALL
