"""Starlark scripts, in a process of their own that can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evalcore.expressions.budget import Budget


def run_starlark(
    source: str,
    scope: Mapping[str, Any],
    budget: Budget | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Run a script and return its variable `result`, or else what its `run()` returns.

    The script sees what JSON can hold of the scope, and the functions (called here, in this
    process, with JSON values; their time is not counted). Raises `ExpressionError`; a function's
    own exception comes through unchanged. Blocks: call it in a thread.
    """
    raise NotImplementedError


def check_starlark(source: str) -> None:
    """Raise `ExpressionSyntaxError` where a script cannot be parsed; nothing is run."""
    raise NotImplementedError
