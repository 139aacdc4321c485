-- The newest runs of every suite that no filter cut, at most two of each variant, oldest first.
SELECT
    suite, run_id, variant, coalesce(decision, state) AS decision,
    target, model, target_sha256, cases_sha256, judges_sha256, suite_sha256, engine,
    git_commit, git_dirty
FROM runs
WHERE part IS NULL OR part NOT LIKE 'chosen by %'
QUALIFY row_number() OVER (PARTITION BY suite, variant ORDER BY started_at DESC, run_id DESC) <= 2
ORDER BY suite, started_at, run_id, variant
