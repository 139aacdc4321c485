-- A row for each assertion by name, type and block: how often it had which outcome, and how often it
-- agrees with people: what `human` assertions say of an item. Where a type has more
-- than $most_names names, each case has its own: they are one row, whose name is NULL. Those that
-- fail most come first.
WITH checked AS NOT MATERIALIZED (
    SELECT
        item, a.name AS name, a.type AS type, a.block AS block, a.outcome AS outcome,
        a.score AS score,
        CASE WHEN a.details IS NOT NULL THEN nullif(array_to_string(list_sort(list_distinct(
            json_extract_string(a.details, '$.votes[*].judge')
            || json_extract_string(a.details, '$.judges[*]')
        )), ','), '') END AS judge
    FROM (
        SELECT item, unnest(assertions) AS a
        FROM read_parquet(getvariable('files'), hive_partitioning = false)
    )
),
kinds AS (
    SELECT type, approx_count_distinct(name) > $most_names AS has_own_names
    FROM checked
    GROUP BY type
),
people AS (
    SELECT item, bool_and(outcome = 'passed') AS accepted
    FROM checked
    WHERE type = 'human' AND outcome IN ('passed', 'failed')
    GROUP BY item
),
listed AS (
    SELECT
        CASE WHEN NOT has_own_names THEN checked.name END AS name, type, block, outcome, score,
        judge, accepted
    FROM checked JOIN kinds USING (type) LEFT JOIN people USING (item)
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
