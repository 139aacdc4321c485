-- Each candidate's case beside the baseline's of the same id; either side may be missing.
-- $candidates, $baselines: variants of `measured` and of `baseline_measured`, matched by place.
-- $same_run: of variants of one run those cases are no pair that are for the target of one of them.
-- A side that was not completed (in error, skipped) is missing. `shared`: both sides are measured;
-- `lost`: the baseline is, and the candidate is not or does not have the case any more.
CREATE OR REPLACE TEMP TABLE pairs AS
WITH matched AS (
    SELECT
        unnest($candidates::VARCHAR[]) AS candidate,
        unnest($baselines::VARCHAR[]) AS baseline,
        unnest(range(len($candidates::VARCHAR[]))) AS place
),
now AS (
    SELECT place, measured.* FROM measured JOIN matched ON variant = candidate
),
was AS (
    SELECT place, baseline_measured.* FROM baseline_measured JOIN matched ON variant = baseline
)
SELECT
    coalesce(now.place, was.place) AS place,
    coalesce(now.case_id, was.case_id) AS case_id,
    coalesce(now.case_number, was.case_number) AS case_number,
    coalesce(was.completed_count > 0, false) AS has_was,
    coalesce(now.completed_count > 0, false) AS has_now,
    was.state AS was_state, now.state AS now_state,
    coalesce(was.state = 'measured' AND now.state = 'measured', false) AS shared,
    coalesce(was.state = 'measured', false)
        AND coalesce(now.state <> 'measured' AND now.counted, now.place IS NULL) AS lost,
    was.passed AS was_passed, now.passed AS now_passed, now.errored AS now_errored,
    was.measured_passed AS was_measured_passed, now.measured_passed AS now_measured_passed,
    was.score AS was_score, now.score AS now_score,
    was.policy_score AS was_policy_score, now.policy_score AS now_policy_score,
    was.score_variance / was.completed_count + now.score_variance / now.completed_count AS noise,
    was.lowest AS was_lowest, was.highest AS was_highest,
    now.lowest AS now_lowest, now.highest AS now_highest,
    was.latency_ms AS was_latency, now.latency_ms AS now_latency,
    was.cost_usd AS was_cost, now.cost_usd AS now_cost,
    was.tokens AS was_tokens, now.tokens AS now_tokens,
    -- Iterations in error say nothing of the baseline, and are no passes of the candidate.
    was.completed_count AS was_run, now.run_count AS now_run,
    was.pass_count AS was_pass_count, now.pass_count AS now_pass_count,
    -- Of a case that is partly in error, the worse of both readings.
    least(now.score - was.score, now.policy_score - was.policy_score) AS difference
FROM now
FULL JOIN was ON now.place = was.place AND now.case_id = was.case_id
WHERE NOT CASE WHEN $same_run THEN coalesce(now.unplanned, was.unplanned)
    OR coalesce(was.unplanned, now.unplanned)
    ELSE coalesce(now.unplanned, true) AND coalesce(was.unplanned, true) END
