-- What differs between the sides of the pairs, one row for each kind of difference.
-- $latency, $cost, $tokens, $score, $floor_ms, $noise_ms: tolerances. `1e-9` is the rounding of the
-- computation: exactly 20 % more is tolerated although 1.2 has no exact double. The table `chances`
-- holds Fisher's p of passes over iterations and whether it is significant.
-- An improvement is a regression with the sides exchanged, except that a candidate in error has none.
-- A case of which some iterations are in error is worse if it is by the completed ones or by all that
-- count, and better only by both. A baseline of 0 has no ratio.
CREATE OR REPLACE TEMP TABLE differences AS
WITH judged AS (
    SELECT
        place, case_number, case_id, has_was, has_now, was_passed, now_passed,
        was_latency, now_latency, was_cost, now_cost, was_tokens, now_tokens,
        was_run, was_pass_count, now_run, now_pass_count,
        was_lowest, was_highest, now_lowest, now_highest,
        now_score - was_score < -($score + 1e-9) AS measured_score_worse,
        CASE WHEN measured_score_worse OR now_policy_score IS NULL THEN [was_score, now_score]
            ELSE [was_policy_score, now_policy_score] END AS scores,
        has_was AND has_now AS in_both,
        in_both AND (was_passed AND NOT now_passed
            OR was_measured_passed AND NOT now_measured_passed) AS assertion_worse,
        was_latency > 0 AND now_latency > was_latency * (1 + $latency + 1e-9)
            AND now_latency > $floor_ms AND now_latency - was_latency >= $noise_ms
            AS latency_worse,
        was_cost > 0 AND now_cost > was_cost * (1 + $cost + 1e-9) AS cost_worse,
        was_tokens > 0 AND now_tokens > was_tokens * (1 + $tokens + 1e-9) AS tokens_worse,
        in_both AND (measured_score_worse
            OR now_policy_score - was_policy_score < -($score + 1e-9)) AS score_worse,
        in_both AND NOT now_errored AND now_passed AND NOT was_passed
            AND now_measured_passed AND NOT was_measured_passed AS assertion_better,
        NOT now_errored AND was_latency > now_latency * (1 + $latency + 1e-9)
            AND was_latency > $floor_ms AND was_latency - now_latency >= $noise_ms
            AS latency_better,
        NOT now_errored AND was_cost > now_cost * (1 + $cost + 1e-9) AS cost_better,
        NOT now_errored AND was_tokens > now_tokens * (1 + $tokens + 1e-9) AS tokens_better,
        in_both AND NOT now_errored AND now_score - was_score > $score + 1e-9
            AND now_policy_score - was_policy_score > $score + 1e-9 AS score_better
    FROM pairs
),
different AS (
    SELECT
        *,
        unnest(list_filter([
            {'kind': 'assertion', 'worse': assertion_worse, 'better': assertion_better,
             'was': assertion_worse::DOUBLE, 'now': 1 - assertion_worse::DOUBLE},
            {'kind': 'latency', 'worse': latency_worse, 'better': latency_better,
             'was': was_latency, 'now': now_latency},
            {'kind': 'cost', 'worse': cost_worse, 'better': cost_better,
             'was': was_cost, 'now': now_cost},
            {'kind': 'tokens', 'worse': tokens_worse, 'better': tokens_better,
             'was': was_tokens, 'now': now_tokens},
            {'kind': 'score', 'worse': score_worse, 'better': score_better,
             'was': scores[1], 'now': scores[2]},
            {'kind': 'missing', 'worse': has_was AND NOT has_now, 'better': false,
             'was': NULL, 'now': NULL}
        ], entry -> coalesce(entry.worse, false) OR coalesce(entry.better, false)
            OR (entry.kind = 'missing' AND NOT in_both))) AS entry,
    FROM judged
    WHERE NOT in_both OR assertion_worse OR assertion_better
        OR latency_worse OR latency_better OR cost_worse OR cost_better
        OR tokens_worse OR tokens_better OR score_worse OR score_better
)
SELECT
    different.place, case_number, case_id, entry.kind AS kind,
    coalesce(entry.worse, false) AS worse, coalesce(entry.better, false) AS better,
    entry.was AS was, entry.now AS now,
    CASE
        WHEN has_was AND NOT has_now THEN 'candidate'
        WHEN has_now AND NOT has_was THEN 'baseline'
        WHEN NOT has_now THEN 'both'
    END AS missing_from,
    was_pass_count, was_run, now_pass_count, now_run, chances.p AS p,
    -- Of means over iterations it is certain that they differ where no iteration of one side is
    -- like one of the other, or where so many different passes are no chance.
    CASE
        WHEN chances.significant THEN true
        WHEN entry.kind = 'assertion' THEN was_pass_count = was_run AND now_pass_count = 0
            OR was_pass_count = 0 AND now_pass_count = now_run
        WHEN entry.kind = 'score' THEN now_highest < was_lowest OR now_lowest > was_highest
        ELSE true
    END AS settled
FROM different
LEFT JOIN chances USING (place, was_pass_count, was_run, now_pass_count, now_run)
