-- Of each result part the first of the columns that it lacks; null if it has all of them.
-- The variable `files` holds the Parquet parts, `columns` the names. Reading several files together
-- makes NULLs of a column that one of them lacks.
SELECT
    file_name,
    list_filter(
        getvariable('columns'),
        name -> NOT list_contains(list(split_part(path_in_schema, ', ', 1)), name)
    )[1] AS lacks
FROM parquet_metadata(getvariable('files'))
GROUP BY file_name
