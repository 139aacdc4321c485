-- One page of `case_rows`, after the row whose key and number are given. {sort}: an expression of
-- `case_table.py` that is never NULL. Every filter that is NULL holds back nothing.
SELECT
    number, case_rows.case_number, case_id, case_group, variant, score, outcome, iterations,
    passed_iterations, latency_ms, cost_usd, tokens, tags, why, change,
    ({sort})::DOUBLE AS key
FROM case_rows
LEFT JOIN changed_cases USING (case_id, variant)
WHERE {filter}
    AND ($after_key IS NULL OR ({sort})::DOUBLE > $after_key
        OR (({sort})::DOUBLE = $after_key AND number > $after_number))
ORDER BY key, number
LIMIT $most
