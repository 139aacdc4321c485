-- How many rows of `case_rows` a choice has; the parameters are those of `case_page`.
SELECT count(*)
FROM case_rows
LEFT JOIN changed_cases USING (case_id, variant)
WHERE {filter}
