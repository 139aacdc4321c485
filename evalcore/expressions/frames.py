"""Variables: the scope, and the frames of comprehensions and lambdas.

A frame is the list `[frame around it or None, scope, budget, local values …]`; every compiled node
is a function of the frame it runs in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from evalcore.expressions.lookup import suggestion
from evalcore.expressions.values import EvaluationFailure

Frame = list[Any]
Run = Callable[[Frame], Any]

AROUND, SCOPE, BUDGET, LOCALS = 0, 1, 2, 3
UNSET: Final = object()
# The only names beginning with an underscore, all of them the statements' own.
UNDERSCORED: Final = frozenset({"_", "_match_groups"})


def local(distance: int, slot: int, name: str) -> Run:
    """Return the function that reads a local value `distance` frames out."""

    def read(frame: Frame) -> Any:
        value = frame[slot]
        if value is UNSET:
            raise EvaluationFailure("UnboundLocalError", f"{name!r} has no value yet")
        return value

    def around(frame: Frame) -> Any:
        value = frame[AROUND][slot]
        if value is UNSET:
            raise EvaluationFailure("UnboundLocalError", f"{name!r} has no value yet")
        return value

    def far(frame: Frame) -> Any:
        for _ in range(distance):
            frame = frame[AROUND]
        return read(frame)

    return (read, around)[distance] if distance < 2 else far


def variable(name: str, functions: frozenset[str]) -> Run:
    """Return the function that reads a variable of the scope."""

    def run(frame: Frame) -> Any:
        try:
            return frame[SCOPE][name]
        except KeyError:
            pass
        if name in functions:
            raise EvaluationFailure(
                "NameError", f"{name!r} is a function: it can be called, and no more"
            )
        raise EvaluationFailure(
            "NameError", f"no variable {name!r}{suggestion(name, frame[SCOPE])}"
        )

    return run
