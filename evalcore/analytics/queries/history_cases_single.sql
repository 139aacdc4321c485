-- `history_cases` where no case is iterated: each item is a case of its own, and nothing is grouped.
-- The columns mean what they mean in `history_cases.sql`: change both.
SELECT
    getvariable('run').run_id AS run_id,
    cases.case_id, cases.case_group, cases.variant, cases.score, cases.passed,
    items.counted::BIGINT AS iterations,
    items.passed::BIGINT AS passed_iterations,
    coalesce(items.status = 'completed' AND items.outcome = 'blocked', false)::BIGINT AS blocked,
    (items.status = 'error')::BIGINT AS errors,
    items.latency_ms, items.cost_usd,
    within_64_bits(CASE WHEN items.input_tokens IS NOT NULL OR items.output_tokens IS NOT NULL
        THEN coalesce(items.input_tokens, 0)::HUGEINT + coalesce(items.output_tokens, 0)
    END) AS tokens,
    sha256(stored.exec_key) AS work_sha256,
    CASE WHEN getvariable('run').cluster <> '' THEN coalesce(
        json_extract_string(stored.metadata, getvariable('run').cluster_path),
        CASE WHEN getvariable('run').cluster = 'group' THEN stored.case_group END
    ) END AS cluster,
    list_contains(getvariable('run').quarantined, cases.case_id) AS quarantined,
    getvariable('run').revision AS revision
FROM cases
JOIN items USING (case_number, variant_number)
JOIN (
    SELECT item, exec_key, metadata, case_group
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
) AS stored USING (item)
WHERE NOT (items.left_out AND NOT items.stopped)
ORDER BY items.item
