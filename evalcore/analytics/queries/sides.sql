-- What is measured of each candidate's cases: how many of each state on each side, how many on both
-- sides, and how many that the baseline measured and the candidate did not (by the error policy).
SELECT
    place,
    coalesce(histogram(was_state) FILTER (was_state IS NOT NULL), MAP {}),
    coalesce(histogram(now_state) FILTER (now_state IS NOT NULL), MAP {}),
    count(*) FILTER (shared),
    count(*) FILTER (lost)
FROM pairs
GROUP BY place
ORDER BY place
