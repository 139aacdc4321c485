-- The newest run of every suite that no filter cut, one row for each variant: its decision and that
-- of the run before it, what the variant was made from and what it was in the run before.
WITH whole AS (
    SELECT
        suite, run_id, variant, coalesce(decision, state) AS decision,
        {
            'target': target, 'model': model, 'target_sha256': target_sha256,
            'cases_sha256': cases_sha256, 'judges_sha256': judges_sha256,
            'suite_sha256': suite_sha256, 'engine': engine, 'git_commit': git_commit,
            'git_dirty': git_dirty
        } AS work,
        lag(work) OVER (PARTITION BY suite, variant ORDER BY started_at, run_id) AS work_before,
        dense_rank() OVER (PARTITION BY suite ORDER BY started_at DESC, run_id DESC) AS age
    FROM runs
    WHERE part IS NULL OR part NOT LIKE 'chosen by %'
),
before AS (
    SELECT suite, any_value(decision) AS decision FROM whole WHERE age = 2 GROUP BY suite
)
SELECT suite, run_id, whole.decision, before.decision, work_before, work
FROM whole LEFT JOIN before USING (suite)
WHERE age = 1
ORDER BY suite, variant
