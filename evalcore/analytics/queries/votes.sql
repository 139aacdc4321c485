-- What people said of each content: question, whether the answers are numbers, and the labels by
-- annotator as JSON text. A content that several items have stands here once for each
-- form of answers.
SELECT question, numeric, votes
FROM (
    SELECT
        json_extract_string(details, '$.annotation.key') AS content,
        json_extract_string(details, ['$.annotation.labels', '$.annotation.scale']) AS form,
        any_value(json_extract_string(details, '$.annotation.question')) AS question,
        any_value(json_extract(details, '$.annotation.scale') IS NOT NULL) AS numeric,
        any_value(json_extract(details, '$.votes')::VARCHAR) AS votes
    FROM (
        SELECT unnest(list_transform(list_filter(
            assertions, a -> contains(a.details, '"annotation":') AND contains(a.details, '"votes":')
        ), a -> a.details)) AS details
        FROM read_parquet(getvariable('files'), hive_partitioning = false)
    )
    GROUP BY content, form
)
ORDER BY question, votes
