-- A run's rows of the history's table `cases`, over the tables `items` and `cases`. A case that is
-- for the targets of other variants has no row.
-- The variable `run` has `run_id` and `revision` of each row, `variants` and `iterations` of the
-- plan, `quarantined`: ids of cases, and
-- `cluster` is the metadata key by which cases belong together, and `cluster_path` its JSON path;
-- both are empty without one. A digest of work is NULL where an item has no execution key.
WITH keyed AS (
    SELECT
        item // (getvariable('run').variants * getvariable('run').iterations) AS case_number,
        (item // getvariable('run').iterations) % getvariable('run').variants AS variant_number,
        CASE WHEN count(exec_key) = count(*)
            THEN sha256(string_agg(exec_key, chr(10) ORDER BY item))
        END AS work_sha256,
        CASE WHEN getvariable('run').cluster <> '' THEN any_value(coalesce(
            json_extract_string(metadata, getvariable('run').cluster_path),
            CASE WHEN getvariable('run').cluster = 'group' THEN case_group END
        )) END AS cluster
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
    GROUP BY ALL
),
summed AS (
    SELECT
        case_number, variant_number,
        bool_and(left_out AND NOT stopped) AS unplanned,
        count(*) FILTER (counted) AS iterations,
        count(*) FILTER (passed) AS passed_iterations,
        count(*) FILTER (status = 'completed' AND outcome = 'blocked') AS blocked,
        count(*) FILTER (status = 'error') AS errors,
        fsum(latency_ms ORDER BY item) / nullif(count(latency_ms), 0) AS latency_ms,
        fsum(cost_usd ORDER BY item) AS cost_usd,
        within_64_bits(
            sum(coalesce(input_tokens, 0)::HUGEINT + coalesce(output_tokens, 0))
                FILTER (input_tokens IS NOT NULL OR output_tokens IS NOT NULL)
        ) AS tokens
    FROM items
    GROUP BY ALL
)
SELECT
    getvariable('run').run_id AS run_id,
    case_id, case_group, variant, score, passed,
    iterations, passed_iterations, blocked, errors, latency_ms, cost_usd, tokens,
    work_sha256, cluster,
    list_contains(getvariable('run').quarantined, case_id) AS quarantined,
    getvariable('run').revision AS revision
FROM cases
JOIN summed USING (case_number, variant_number)
JOIN keyed USING (case_number, variant_number)
WHERE NOT unplanned
ORDER BY case_number, variant_number
