-- What earlier runs measured in this run's variants of cases that this run does not have.
CREATE OR REPLACE TEMP VIEW vanished_cases AS
SELECT past_cases.*
FROM past_cases
SEMI JOIN cases USING (variant)
ANTI JOIN cases USING (variant, case_id)
