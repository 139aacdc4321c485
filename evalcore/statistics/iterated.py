"""What the iterations of one case say of k attempts (docs/reference/statistics.md)."""

from __future__ import annotations

from math import comb


def pass_at_k(n: int, passed: int, k: int) -> float | None:
    """Return the probability that one of `k` attempts passes: 1 − C(n−c, k)/C(n, k).

    None for fewer than `k` iterations (Chen et al. 2021, unbiased).
    """
    if not 1 <= k <= n:
        return None
    return 1.0 - comb(n - passed, k) / comb(n, k)


def pass_all_k(n: int, passed: int, k: int) -> float | None:
    """Return the probability that all of `k` attempts pass (pass^k): C(c, k)/C(n, k).

    None for fewer than `k` iterations.
    """
    if not 1 <= k <= n:
        return None
    return comb(passed, k) / comb(n, k)
