"""The scores of a script suite's run, computed in SQL over the tables of `Aggregates`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalcore.model.script_scores import (
    GroupScore,
    ModelTokens,
    Note,
    ScriptScores,
    TestDetail,
    TestScore,
)

# A named query with its parameters → its rows.
Query = Callable[..., list[tuple[Any, ...]]]


def read_script_scores(query: Query, *, iterations: int, detail: bool) -> ScriptScores:
    """Return the scores; with `detail` also those of each iteration."""
    details = None
    if detail:
        rows = query("script_details", iterations=iterations)
        details = tuple(
            TestDetail(tuple(row[0]), tuple(row[1]), tuple(row[2]), row[3]) for row in rows
        )
    return ScriptScores(
        finals=tuple((variant, score) for variant, score in query("script_finals")),
        groups=tuple(GroupScore(*row) for row in query("script_groups")),
        tests=tuple(TestScore(*row) for row in query("script_tests")),
        details=details,
        tokens=tuple(ModelTokens(*row) for row in query("script_tokens")),
    )


def read_notes(query: Query) -> tuple[Note, ...]:
    """Return errors and warnings in the order of the plan, each once per test."""
    return tuple(
        Note(is_error, variant, case, message, tuple(iterations))
        for is_error, variant, case, message, iterations in query("script_notes")
    )
