-- The source of `assertion_counts.sql` for some runs ($run_ids) of a suite ($suite) in the history.
SELECT run_id, item, name, type, block, outcome, score, judge
FROM assertions
WHERE suite = $suite AND run_id IN (SELECT unnest($run_ids))
