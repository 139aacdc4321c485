-- Tokens by model, of the calls in the evidence; the models in the order of their names.
WITH calls AS (
    SELECT unnest(from_json(json_extract(evidence, '$.details.calls'), '["JSON"]')) AS call
    FROM read_parquet(getvariable('files'), hive_partitioning = false)
    WHERE contains(evidence, '"calls"')
)
SELECT
    coalesce(call->>'provider', '') AS model,
    sum(coalesce(TRY_CAST(call->>'input_tokens' AS HUGEINT), 0)) AS input_tokens,
    sum(coalesce(TRY_CAST(call->>'output_tokens' AS HUGEINT), 0)) AS output_tokens
FROM calls
GROUP BY model
HAVING input_tokens + output_tokens > 0
ORDER BY model
