-- What the committed items of a run have used: dollars, tokens, and how long (seconds) at least
-- one of them was at work. What judges used stands with the assertions. $files: the Parquet parts.
WITH rows AS (
    SELECT
        item, cost_usd, input_tokens, output_tokens,
        list_sum(list_transform(assertions, a -> coalesce(a.cost_usd, 0.0))) AS judged_usd,
        list_sum(list_transform(
            assertions,
            a -> coalesce(TRY_CAST(a.details ->> '$.token_usage.input' AS HUGEINT), 0)
                + coalesce(TRY_CAST(a.details ->> '$.token_usage.output' AS HUGEINT), 0)
        )) AS judged_tokens,
        epoch_us(started_at) AS began,
        epoch_us(ended_at) AS ended,
        max(epoch_us(ended_at)) OVER (
            ORDER BY started_at, item ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until
    FROM read_parquet($files, hive_partitioning = false)
)
SELECT
    coalesce(fsum(coalesce(cost_usd, 0.0) + coalesce(judged_usd, 0.0) ORDER BY item), 0.0),
    coalesce(sum(
        coalesce(input_tokens, 0)::HUGEINT + coalesce(output_tokens, 0)
            + coalesce(judged_tokens, 0)
    ), 0),
    coalesce(sum(greatest(0, ended - greatest(began, coalesce(busy_until, began)))), 0) / 1e6
FROM rows
