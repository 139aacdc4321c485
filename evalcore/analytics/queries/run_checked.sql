-- The source of `assertion_counts.sql` for one run, over its result `files`.
SELECT
    '' AS run_id, item, a.name AS name, a.type AS type, a.block AS block, a.outcome AS outcome,
    a.score AS score,
    CASE WHEN a.details IS NOT NULL THEN nullif(array_to_string(list_sort(list_distinct(
        json_extract_string(a.details, '$.votes[*].judge')
        || json_extract_string(a.details, '$.judges[*]')
    )), ','), '') END AS judge
FROM (
    SELECT item, unnest(assertions) AS a
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
)
