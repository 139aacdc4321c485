-- A row for each assertion by name, type and block: how often it had which outcome, and how often it
-- agrees with people. Its source are rows run_id, item, name, type, block, outcome, score, judge; those
-- that `human` assertions say of an item are people's judgement of it. Those that fail most first.
WITH checked AS ({source}),
people AS (
    SELECT run_id, item, bool_and(outcome = 'passed') AS accepted
    FROM checked
    WHERE type = 'human' AND outcome IN ('passed', 'failed')
    GROUP BY run_id, item
)
SELECT
    name, type, block,
    count(*) AS results,
    count(*) FILTER (outcome = 'passed') AS passed,
    count(*) FILTER (outcome = 'failed') AS failed,
    count(*) FILTER (outcome = 'blocked') AS blocked,
    count(*) FILTER (outcome = 'error') AS errors,
    avg(score) AS score,
    string_agg(DISTINCT judge, ', ' ORDER BY judge) AS judges,
    count(accepted) FILTER (judge IS NOT NULL AND outcome IN ('passed', 'failed')) AS compared,
    count(*) FILTER (
        judge IS NOT NULL AND outcome IN ('passed', 'failed') AND (outcome = 'passed') <> accepted
    ) AS disagreed
FROM checked LEFT JOIN people USING (run_id, item)
GROUP BY name, type, block
ORDER BY (failed + errors) / results DESC, blocked / results DESC, name, type, block NULLS FIRST
