-- Each candidate's case beside the baseline's of the same id; either side may be missing.
-- $candidates, $baselines: variants of `measured` and of `baseline_measured`, matched by place.
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
    was.case_id IS NOT NULL AS has_was,
    now.case_id IS NOT NULL AS has_now,
    was.passed AS was_passed, now.passed AS now_passed, now.errored AS now_errored,
    was.score AS was_score, now.score AS now_score,
    was.lowest AS was_lowest, was.highest AS was_highest,
    now.lowest AS now_lowest, now.highest AS now_highest,
    was.latency_ms AS was_latency, now.latency_ms AS now_latency,
    was.cost_usd AS was_cost, now.cost_usd AS now_cost,
    was.tokens AS was_tokens, now.tokens AS now_tokens,
    was.run_count AS was_run, now.run_count AS now_run,
    was.pass_count AS was_pass_count, now.pass_count AS now_pass_count
FROM now
FULL JOIN was ON now.place = was.place AND now.case_id = was.case_id
