-- Candidate − baseline of the scores of the cases that both measured, and the cases of both that
-- passed on one side only (docs/reference/statistics.md). `noise` is the mean of the variance that a
-- difference has of its iterations, `iterations` the most that a case has.
WITH shared AS (
    SELECT
        place, case_number, case_id, CASE WHEN shared THEN difference END AS d,
        noise, now_run, was_passed AND NOT now_passed AS worse, now_passed AND NOT was_passed AS better
    FROM pairs
    WHERE has_was AND has_now
),
means AS (
    SELECT
        place, count(*) AS compared, count(d) AS n,
        fsum(d ORDER BY case_number, case_id) / nullif(count(d), 0) AS mean,
        fsum(noise ORDER BY case_number, case_id) / nullif(count(noise), 0) AS noise,
        max(now_run) AS iterations,
        count(*) FILTER (worse) AS worse, count(*) FILTER (better) AS better
    FROM shared
    GROUP BY place
)
SELECT
    place, any_value(compared), any_value(n), any_value(mean),
    fsum((d - mean) * (d - mean) ORDER BY case_number, case_id),
    min(d - mean), max(d - mean), fsum(pow(d - mean, 4) ORDER BY case_number, case_id),
    any_value(means.worse), any_value(means.better), any_value(means.noise),
    any_value(means.iterations)
FROM shared JOIN means USING (place)
GROUP BY place
ORDER BY place
