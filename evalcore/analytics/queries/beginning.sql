-- As much of a text as results keep (assertions.wording.KEPT_LENGTH).
CREATE OR REPLACE TEMP MACRO beginning(value) AS
    CASE WHEN length(value) > 500 THEN value[:499] || '…' ELSE value END
