"""What somebody else's function raises is an error of its call."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from evalcore.trust.imports import ForeignError, call_foreign


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def function() -> NoReturn:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(ValueError("two\n  lines"), "ValueError: two lines", id="exception"),
        pytest.param(KeyError(), "KeyError", id="without message"),
        pytest.param(SystemExit(3), "SystemExit: 3", id="exit"),
        pytest.param(KeyboardInterrupt(), "KeyboardInterrupt", id="interrupt"),
        pytest.param(StopIteration(1), "StopIteration: 1", id="stop iteration"),
        pytest.param(GeneratorExit(), "GeneratorExit", id="generator exit"),
        pytest.param(asyncio.CancelledError("me"), "CancelledError: me", id="cancelled"),
        pytest.param(UnspeakableError(), "UnspeakableError", id="no words"),
    ],
)
def test_whatever_a_function_raises_is_a_foreign_error(error: BaseException, text: str) -> None:
    with pytest.raises(ForeignError) as caught:
        asyncio.run(call_foreign(raising(error)))
    assert str(caught.value).rpartition(" (")[0] == text
    assert caught.value.__cause__ is error


def test_an_exit_in_an_async_function_is_a_foreign_error() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(ForeignError, match=r"^SystemExit: 3 \(.*test_calls\.py:\d+\)$"):
        asyncio.run(call_foreign(leave))


def test_an_error_names_the_line_of_the_author_and_not_that_of_a_library() -> None:
    with pytest.raises(ForeignError, match=r"test_calls\.py:\d+\)$") as caught:
        asyncio.run(call_foreign(lambda: json.loads("{")))
    line = int(re.findall(r"\d+", str(caught.value))[-1])
    assert 'json.loads("{")' in Path(__file__).read_text("utf-8").splitlines()[line - 1]


def test_what_is_to_be_awaited_is_awaited() -> None:
    async def later(number: int) -> int:
        return number + 1

    assert asyncio.run(call_foreign(later, 1)) == 2
    assert asyncio.run(call_foreign(lambda *, number: later(number), number=2)) == 3
