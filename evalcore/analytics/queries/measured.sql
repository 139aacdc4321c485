-- What comparisons need of each case × variant: means over its iterations.
-- $iterations: the plan's. $reducer, $k, $by_score: how cases are reduced, as in `cases.sql`.
-- An item in error measures nothing, also where the error policy gives it a score: `score`,
-- `measured_passed` and the other measures are of the completed items, `policy_score` and `passed`
-- of those that count under the policy.
-- `unplanned`: the case is for the targets of other variants.
-- `state` is measured (an item passed or failed), or why nothing is: blocked, error, skipped.
CREATE OR REPLACE TEMP TABLE measured AS
WITH known_items AS (
    SELECT
        case_number, variant_number, item, outcome, passed, counted, counted_score, threshold,
        left_out AND NOT stopped AS unplanned, missed, status = 'completed' AS completed, status = 'error' AS errored,
        CASE WHEN status = 'completed' THEN counted_score END AS score,
        CASE WHEN status = 'completed' THEN latency_ms END AS latency_ms,
        CASE WHEN status = 'completed' THEN cost_usd END AS cost_usd,
        CASE WHEN status = 'completed' AND (input_tokens IS NOT NULL OR output_tokens IS NOT NULL)
            THEN coalesce(input_tokens, 0)::HUGEINT + coalesce(output_tokens, 0)
        END::DOUBLE AS tokens
    FROM items
),
means AS (
    SELECT
        case_number, variant_number,
        count(*) FILTER (counted AND (completed OR errored)) AS run_count,
        count(*) FILTER (completed) AS completed_count,
        count(*) FILTER (completed AND outcome <> 'blocked') AS decided_count,
        count(*) FILTER (errored) AS error_count,
        count(*) FILTER (passed) AS pass_count,
        coalesce(bool_or(counted AND errored), false) AS errored,
        bool_or(counted) AS counted,
        bool_and(unplanned) AS unplanned,
        fsum(counted_score ORDER BY item) / nullif(count(counted_score), 0) AS policy_score,
        fsum(score ORDER BY item) / nullif(count(score), 0) AS score,
        CASE WHEN $reducer = 'median' THEN median(score) END AS median_score,
        var_samp(score ORDER BY item) AS score_variance,
        min(score) AS lowest,
        max(score) AS highest,
        bool_and(outcome <> 'blocked' AND len(coalesce(missed, [])) = 0)
            FILTER (completed) AS sound,
        any_value(threshold) AS threshold,
        fsum(latency_ms ORDER BY item) / nullif(count(latency_ms), 0) AS latency_ms,
        fsum(cost_usd ORDER BY item) / nullif(count(cost_usd), 0) AS cost_usd,
        fsum(tokens ORDER BY item) / nullif(count(tokens), 0) AS tokens
    FROM known_items
    WHERE $iterations > 1
    GROUP BY case_number, variant_number
    UNION ALL
    -- One item is its own mean: ordered sums of single rows take longer than everything else.
    SELECT
        case_number, variant_number,
        (counted AND (completed OR errored))::BIGINT, completed::BIGINT,
        coalesce(completed AND outcome <> 'blocked', false)::BIGINT, errored::BIGINT,
        passed::BIGINT, counted AND errored, counted, unplanned, counted_score, score, NULL, NULL,
        score, score, NULL, threshold, latency_ms, cost_usd, tokens
    FROM known_items
    WHERE $iterations = 1
)
SELECT
    cases.variant, cases.case_id, cases.passed AND cases.counted AS passed,
    CASE WHEN $iterations = 1 THEN cases.passed AND cases.counted
        ELSE case_passes(
            $reducer, $by_score, completed_count, pass_count, coalesce($k, completed_count),
            sound, coalesce(median_score, means.score), threshold
        ) END AS measured_passed,
    CASE
        WHEN decided_count > 0 THEN 'measured'
        WHEN completed_count > 0 THEN 'blocked'
        WHEN error_count > 0 THEN 'error'
        ELSE 'skipped'
    END AS state,
    means.* EXCLUDE (median_score, sound, threshold, decided_count, error_count)
FROM cases
JOIN means USING (case_number, variant_number)
