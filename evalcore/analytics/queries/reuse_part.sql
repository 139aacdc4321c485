-- The stored rows of one range of planned items, in their order. $first, $stop: the range.
SELECT
    found.item, found.graded, stored.* EXCLUDE (item, filename)
FROM read_parquet(getvariable('files'), hive_partitioning = false, filename = true, union_by_name = true) AS stored
JOIN files ON files.file = stored.filename
JOIN found ON found.number = files.number AND found.source_item = stored.item
WHERE found.item >= $first AND found.item < $stop
ORDER BY found.item
