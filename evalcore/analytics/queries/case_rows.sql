-- A row for each case × variant as lists of cases show it: `number` is its place in the plan.
-- After `items` and `cases` (or `cases_single`). $variants, $iterations: the plan's.
-- `unmet`: the names of assertions that did not pass; `why`: what the first of them says, or the
-- item's error. Inputs are not here: `questions` has the beginning of each, by `case_number`,
-- after the first search.
CREATE OR REPLACE TEMP TABLE case_rows AS
WITH measured AS (
    SELECT
        item // ($variants * $iterations) AS case_number,
        (item // $iterations) % $variants AS variant_number,
        any_value(tags) AS tags,
        list_distinct(list(coalesce(outcome, status))) AS ends,
        list_distinct(flatten(list(list_transform(
            list_filter(coalesce(assertions, []), a -> a.outcome <> 'passed'), a -> a.name
        )))) AS unmet,
        first(coalesce(
            error.message,
            reason,
            list_extract(list_filter(coalesce(assertions, []), a -> a.outcome <> 'passed'), 1).name
                || ': ' || coalesce(
                    list_extract(
                        list_filter(coalesce(assertions, []), a -> a.outcome <> 'passed'), 1
                    ).message, '')
        ) ORDER BY (outcome IS DISTINCT FROM 'passed') DESC, item) AS why,
        avg(latency_ms) AS latency_ms,
        sum(cost_usd) AS cost_usd,
        sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) FILTER (
            input_tokens IS NOT NULL OR output_tokens IS NOT NULL
        ) AS tokens,
        count(*) AS iterations,
        count(*) FILTER (outcome = 'passed') AS passed_iterations
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
    GROUP BY ALL
)
SELECT
    (case_number * $variants + variant_number)::BIGINT AS number,
    case_number::BIGINT AS case_number,
    case_id,
    case_group,
    variant,
    score,
    CASE
        WHEN passed THEN 'passed'
        WHEN list_contains(ends, 'error') THEN 'error'
        WHEN list_contains(ends, 'failed') THEN 'failed'
        WHEN list_contains(ends, 'blocked') THEN 'blocked'
        WHEN list_contains(ends, 'skipped') THEN 'skipped'
        WHEN list_contains(ends, 'cancelled') THEN 'cancelled'
        ELSE 'failed'
    END AS outcome,
    iterations,
    passed_iterations,
    latency_ms,
    cost_usd,
    tokens::BIGINT AS tokens,
    coalesce(tags, []) AS tags,
    coalesce(unmet, []) AS unmet,
    CASE WHEN NOT passed THEN why[:200] END AS why
FROM cases JOIN measured USING (case_number, variant_number)
