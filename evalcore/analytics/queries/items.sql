-- What the aggregates need of each row, with the place of its case and variant in the plan.
-- The variable `files` holds the Parquet parts. $variants, $iterations: the plan's.
-- $errors: the error policy. Texts stay in the parts: `report_cases` and `failures` fetch them.
-- `counted`: false for an item in error that the policy excludes. `counted_score`: the score of a
-- completed item, 0 for one in error that counts, NULL for any other. `missed`: the required
-- assertions below their thresholds; `required_measured`, `required_open`: how many required
-- assertions are measured, and are not. `left_out`: skipped since the gates were decided before
-- (`stopped`), or since the case is for the targets of other variants.
-- `refused`: not tried since a provider refused every call.
-- `awaiting`: labels of people are missing. Such an item counts as it is, what is required of people
-- as not met; in the variants of the variable `best_variants` (by number) it counts as if people
-- answered as expected.
CREATE OR REPLACE TEMP TABLE items AS
SELECT
    item, case_id, case_group, variant, status, outcome, threshold,
    latency_ms, cost_usd, input_tokens, output_tokens,
    cached_tokens, cache_write_tokens, cache_write_1h_tokens, input_audio_tokens,
    reasoning_tokens, output_audio_tokens, batch_tokens, unpriced_models, finish_reason,
    item // ($variants * $iterations) AS case_number,
    (item // $iterations) % $variants AS variant_number,
    CASE
        WHEN status = 'completed' THEN score
        WHEN status = 'error' AND $errors <> 'exclude' THEN 0.0
    END AS counted_score,
    coalesce(status = 'completed' AND outcome = 'passed', false) AS passed,
    NOT (status = 'error' AND $errors = 'exclude') AND NOT left_out AS counted,
    left_out,
    stopped,
    coalesce(status = 'skipped' AND reason = 'refused', false) AS refused,
    awaiting,
    len(assertions) AS asserted,
    len(list_filter(assertions, a -> a.outcome = 'error')) AS asserted_errors,
    len(list_filter(
        assertions,
        a -> a.outcome = 'blocked' AND json_extract_string(
            a.details, '$.assertion_result.failure.code'
        ) = 'judge_unavailable'
    )) AS unjudged,
    list_transform(
        list_filter(
            assertions,
            a -> a.required IS NOT NULL AND a.score < a.required - 1e-9
                AND (a.outcome IN ('passed', 'failed') OR (
                    awaiting AND best IS NULL AND contains(a.details, '"if_passed":')
                ))
        ),
        a -> {'name': a.name, 'score': a.score, 'required': a.required}
    ) AS missed,
    len(list_filter(
        assertions, a -> a.required IS NOT NULL AND a.outcome NOT IN ('passed', 'failed')
    )) AS required_open,
    len(list_filter(
        assertions, a -> a.required IS NOT NULL AND a.outcome IN ('passed', 'failed')
    )) AS required_measured,
    list_sum(list_transform(assertions, a -> a.cost_usd)) AS judged_usd
FROM (
    SELECT
        * REPLACE (
            CASE WHEN best IS NULL THEN score
                ELSE CAST(json_extract(best, '$.if_passed.score') AS DOUBLE) END AS score,
            CASE WHEN best IS NULL THEN outcome
                ELSE json_extract_string(best, '$.if_passed.outcome') END AS outcome
        )
    FROM (
        SELECT
            *,
            coalesce(status = 'skipped' AND reason = 'decided', false) AS stopped,
            coalesce(
                status = 'skipped' AND reason IN ('decided', 'not for this target'), false
            ) AS left_out,
            coalesce(reason = 'awaiting annotation', false) AS awaiting,
            CASE WHEN reason = 'awaiting annotation' AND list_contains(
                getvariable('best_variants'), (item // $iterations) % $variants
            ) THEN list_filter(assertions, a -> contains(a.details, '"if_passed":'))[1].details
            END AS best
        FROM result_rows(getvariable('files'))
    )
)
