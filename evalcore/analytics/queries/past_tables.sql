-- The rows of the earlier runs that gates look back on, without a row yet.
CREATE OR REPLACE TEMP TABLE past_runs (
    number INTEGER, run_id VARCHAR, variant VARCHAR, cases BIGINT, score DOUBLE,
    pass_rate DOUBLE, latency DOUBLE, cost DOUBLE
);
CREATE OR REPLACE TEMP TABLE past_cases (
    number INTEGER, variant VARCHAR, case_id VARCHAR, cluster VARCHAR,
    score DOUBLE, passed BOOLEAN, wavered BOOLEAN
);
