-- The functions that a text of SQL ($statement) calls; of table functions, argument is the first
-- one if that is a constant text. No row is there if the text is no SELECT.
WITH nodes AS MATERIALIZED (
    SELECT key, atom->>'$' AS value, path
    FROM json_tree(json_serialize_sql($statement::VARCHAR))
    WHERE key IN ('function_name', 'id', 'value', 'error') AND atom IS NOT NULL
)
SELECT '' AS name, false AS is_table, NULL AS argument
FROM nodes
WHERE key = 'error' AND value = 'false'
UNION ALL
SELECT lower(called.value), called.path LIKE '%.function', argument.value
FROM nodes AS called
LEFT JOIN nodes AS kind
    ON kind.key = 'id' AND kind.value = 'VARCHAR'
    AND kind.path = called.path || '.children[0].value.type'
LEFT JOIN nodes AS argument
    ON argument.key = 'value' AND argument.path = called.path || '.children[0].value'
    AND kind.value IS NOT NULL
WHERE called.key = 'function_name'
