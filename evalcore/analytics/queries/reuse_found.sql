-- For each planned item the place of a stored row with the same exec_key: one whose grade_key is
-- the same if there is one, then the newest run's, then its first.
-- The tables `planned` (item, exec_key, grade_key) and `files` (rank, file; rank 0 is the newest
-- run) stand; the variable `files` holds the files. $errors: whether rows in error count, and
-- rows that were skipped since the gates were decided.
CREATE OR REPLACE TEMP TABLE found AS
WITH stored AS (
    SELECT exec_key, grade_key, item AS source_item, filename AS file
    FROM read_parquet(getvariable('files'), hive_partitioning = false, filename = true)
    WHERE status = 'completed'
        OR ($errors AND (status = 'error' OR (status = 'skipped' AND reason = 'decided')))
),
ranked AS (
    SELECT
        planned.item, files.number, stored.source_item,
        stored.grade_key = planned.grade_key AS graded,
        row_number() OVER (
            PARTITION BY planned.item
            ORDER BY stored.grade_key = planned.grade_key DESC, files.rank, files.number,
                stored.source_item
        ) AS place
    FROM planned
    JOIN stored USING (exec_key)
    JOIN files USING (file)
)
SELECT item, number, source_item, graded FROM ranked WHERE place = 1
