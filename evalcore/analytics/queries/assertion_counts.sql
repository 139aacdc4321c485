-- A row for each assertion by name, type and block: how often it had which outcome, and how often it
-- agrees with people. Its source are rows run_id, item, name, type, block, outcome, score, judge;
-- those that `human` assertions say of an item are people's judgement of it. Where a type has more
-- than $most_names names, each case has its own: they are one row, whose name is NULL. Those that
-- fail most come first.
WITH checked AS NOT MATERIALIZED ({source}),
kinds AS (
    SELECT type, approx_count_distinct(name) > $most_names AS has_own_names
    FROM checked
    GROUP BY type
),
people AS (
    SELECT run_id, item, bool_and(outcome = 'passed') AS accepted
    FROM checked
    WHERE type = 'human' AND outcome IN ('passed', 'failed')
    GROUP BY run_id, item
),
listed AS (
    SELECT
        CASE WHEN NOT has_own_names THEN checked.name END AS name, type, block, outcome, score,
        judge, accepted
    FROM checked JOIN kinds USING (type) LEFT JOIN people USING (run_id, item)
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
FROM listed
GROUP BY name, type, block
ORDER BY (failed + errors) / results DESC, blocked / results DESC, name NULLS FIRST, type,
    block NULLS FIRST
