-- The difference of each pair of cases that both sides measured, and the candidate's place in
-- $candidates.
SELECT case_number, ($candidates::VARCHAR[])[place + 1] AS variant, difference
FROM pairs
WHERE shared AND difference IS NOT NULL
