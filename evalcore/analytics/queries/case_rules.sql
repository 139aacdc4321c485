-- The 97.5 % quantile of Student's distribution: from a table, beyond 30 degrees of freedom by the
-- expansion around the normal quantile (Abramowitz and Stegun 26.7.5), right to seven places.
CREATE OR REPLACE TEMP MACRO student_quantile(df) AS (
    CASE WHEN df <= 30 THEN [
        12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836,
        2.446911851, 2.364624252, 2.306004135, 2.262157163, 2.228138852,
        2.200985160, 2.178812830, 2.160368656, 2.144786688, 2.131449546,
        2.119905299, 2.109815578, 2.100922040, 2.093024054, 2.085963447,
        2.079613845, 2.073873068, 2.068657610, 2.063898562, 2.059538553,
        2.055529439, 2.051830516, 2.048407142, 2.045229642, 2.042272456
    ][df]
    ELSE 1.959963985 + 2.372271230 / df + 2.822498616 / df ** 2 + 2.555849680 / df ** 3
        + 1.589534053 / df ** 4
    END
);

-- The lower end of Student's 95 % interval of the mean of scores; of one score that score.
CREATE OR REPLACE TEMP MACRO lower_mean(scores) AS (
    CASE WHEN len(scores) = 1 THEN scores[1]
    WHEN len(scores) > 1 THEN greatest(
        0.0,
        list_aggregate(scores, 'fsum') / len(scores)
        - student_quantile(len(scores) - 1)
        * list_aggregate(scores, 'stddev_samp') / sqrt(len(scores))
    )
    END
);

-- The score of a case by the reducer (docs/reference/engine.md#scores): `n` items count, `c` passed.
-- Fewer than `k` items say nothing of k attempts: NULL.
CREATE OR REPLACE TEMP MACRO reduced_score(reducer, scores, n, c, k) AS (
    CASE reducer
        WHEN 'median' THEN list_median(scores)
        WHEN 'min' THEN list_min(scores)
        WHEN 'max' THEN list_max(scores)
        WHEN 'pass_at_k' THEN
            CASE WHEN n < k THEN NULL
            WHEN n - c < k THEN 1.0
            -- The product of no factors is 1, DuckDB says NULL.
            ELSE 1.0 - coalesce(
                list_product(list_transform(range(n - c + 1, n + 1), i -> 1.0 - k / i)), 1.0
            )
            END
        WHEN 'pass_all_k' THEN
            CASE WHEN n < k THEN NULL
            WHEN c < k THEN 0.0
            ELSE list_product(list_transform(range(0, k), i -> (c - i) / (n - i)))
            END
        WHEN 'confidence_interval' THEN lower_mean(scores)
        WHEN 'at_least_k' THEN CASE WHEN c >= k THEN 1.0 ELSE 0.0 END
        ELSE CASE WHEN len(scores) = 1 THEN scores[1]
             ELSE list_aggregate(scores, 'fsum') / len(scores) END
    END
);

-- Whether a case has passed: of `n` items that count, `c` passed (docs/reference/engine.md).
CREATE OR REPLACE TEMP MACRO case_passes(
    reducer, by_score, n, c, wanted, sound, score, threshold
) AS coalesce(
    CASE
        WHEN n = 0 THEN false
        WHEN reducer IN ('max', 'pass_at_k') THEN c >= 1
        WHEN reducer = 'at_least_k' THEN c >= wanted
        WHEN by_score AND n > 1 THEN sound AND score >= threshold - 1e-9
        ELSE c = n
    END,
    false
)
