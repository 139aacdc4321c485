-- A run's rows of the history's table `assertions`, in the order of the plan.
WITH checked AS (
    SELECT item, case_id, variant, iteration, unnest(assertions) AS a
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
)
SELECT
    getvariable('run').run_id AS run_id,
    item, case_id, variant, iteration::BIGINT AS iteration,
    a.name AS name, a.type AS type, a.block AS block, a.outcome AS outcome,
    a.score AS score, a.weight AS weight, a.required AS required,
    CASE WHEN a.details IS NOT NULL THEN nullif(array_to_string(list_sort(list_distinct(
        json_extract_string(a.details, '$.votes[*].judge')
        || json_extract_string(a.details, '$.judges[*]')
    )), ','), '') END AS judge,
    getvariable('run').revision AS revision
FROM checked
