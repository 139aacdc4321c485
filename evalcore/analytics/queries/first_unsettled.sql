-- The first unsettled regression of each candidate, with the passes of its iterations.
SELECT place, case_id, was_pass_count, was_run, now_pass_count, now_run
FROM differences
WHERE worse AND NOT settled
QUALIFY row_number() OVER (PARTITION BY place ORDER BY case_number, case_id, kind) = 1
ORDER BY place
