-- The median time (seconds) that the items of one shard took.
SELECT median(epoch_us(ended_at) - epoch_us(started_at)) / 1e6 FROM read_parquet($file, hive_partitioning = false)
