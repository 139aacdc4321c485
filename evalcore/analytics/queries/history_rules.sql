-- A sum as the history's columns hold it: the largest 64-bit integer where it is larger.
CREATE OR REPLACE TEMP MACRO within_64_bits(total) AS
    CASE WHEN total > 9223372036854775807 THEN 9223372036854775807 ELSE total END::BIGINT
