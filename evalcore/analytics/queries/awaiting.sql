-- How many labels of people are missing, each content once for each form of answers, and for how
-- many work items.
SELECT sum(missing)::BIGINT AS labels, (SELECT count(*) FROM items WHERE awaiting) AS items
FROM (
    SELECT
        json_extract_string(details, '$.annotation.key') AS content,
        json_extract_string(details, ['$.annotation.labels', '$.annotation.scale']) AS form,
        max(CAST(json_extract(details, '$.missing') AS BIGINT)) AS missing
    FROM (
        SELECT item, unnest(list_transform(list_filter(
            assertions, a -> a.outcome = 'blocked' AND contains(a.details, '"if_passed":')
        ), a -> a.details)) AS details
        FROM read_parquet(getvariable('files'), hive_partitioning = false)
        WHERE reason = 'awaiting annotation'
    )
    WHERE item IN (SELECT item FROM items WHERE awaiting)
    GROUP BY content, form
)
