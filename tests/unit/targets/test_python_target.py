from __future__ import annotations

import asyncio
import itertools
import json
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.model.target import Target, Variant
from evalcore.targets.registry import build
from evalcore.targets.work import Work, messages_of, prompt_of
from evalcore.trust.imports import ImportPolicy

VARIANT = Variant("v1", config={"tone": "kind"})


@pytest.fixture
def folder(tmp_path: Path, numbers: Iterator[int]) -> Path:
    return tmp_path / f"suite{next(numbers)}"


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return itertools.count()


def work_in(folder: Path, case_input: Any = "hi") -> Work:
    case = Case("c1", case_input, metadata={"m": 1})
    messages = messages_of(case_input)
    imports = ImportPolicy(roots=(folder,))
    return Work(case, VARIANT, 2, 7, prompt_of(messages), messages, folder, imports)


def answer(folder: Path, code: str, case_input: Any = "hi") -> Evidence:
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(code)
    target = build(Target("t", "python", {"callable": "mine:fn"}), VARIANT)
    work = work_in(folder, case_input)
    assert target.waits(work.case)
    return asyncio.run(target.answer(work))


MODELS = """
import dataclasses, datetime, enum, pydantic
class Recipe(pydantic.BaseModel):
    title: str
    day: datetime.date | None = None
@dataclasses.dataclass
class Dish:
    recipe: Recipe
    served: datetime.date = datetime.date(2026, 1, 2)
class Kind(str, enum.Enum):
    SOUP = "soup"
"""
DISHES = '[{"recipe": {"title": "a", "day": null}, "served": "2026-01-02"}]'


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("def fn(input): return input + '!'", "hi!"),
        ("async def fn(input): return input + '!'", "hi!"),
        ("def fn(input, *, context): return context.case_id", "c1"),
        ("def fn(input, **more): return more['context'].variant", "v1"),
        ("class A:\n  async def __call__(self, input): return 'a'\nfn = A()", "a"),
        ("async def a(input): return 'a'\nfn = lambda input: a(input)", "a"),
        ("import functools\ndef f(a, input): return a\nfn = functools.partial(f, 'p')", "p"),
        ("fn = str.upper", "HI"),
        ("def fn(input): return {'b': 1, 'a': ['ü']}", '{"b": 1, "a": ["ü"]}'),
        ("def fn(input): return [1, None]", "[1, null]"),
        ("def fn(input): return ''", ""),
        ("def fn(input): return 7", "7"),
        ("def fn(input): return 0.5", "0.5"),
        ("def fn(input): return False", "false"),
        (f"{MODELS}def fn(input): return Recipe(title='ü')", '{"title": "ü", "day": null}'),
        (f"{MODELS}def fn(input): return [Dish(Recipe(title='a'))]", DISHES),
        (f"{MODELS}def fn(input): return {{'best': Kind.SOUP}}", '{"best": "soup"}'),
        (f"{MODELS}def fn(input): return Kind.SOUP", "soup"),
        ("def fn(input): return {'output': 1, 'more': 2}", '{"output": 1, "more": 2}'),
    ],
    ids=[
        "sync", "async", "context", "any keyword", "async instance", "returns a coroutine",
        "partial", "without a signature", "mapping", "list", "empty text", "whole number", "number",
        "truth value", "model", "dataclass with a model", "value of an enumeration in a mapping",
        "value of an enumeration", "mapping with any keys",
    ],
)  # fmt: skip
def test_function_answers(folder: Path, code: str, output: str) -> None:
    assert answer(folder, code).output == output


def test_context_holds_what_belongs_to_the_item(folder: Path) -> None:
    code = """
    NAMES = ("case_id", "variant", "iteration", "mode", "input", "expected_output", "metadata",
             "messages", "config", "workspace")
    def fn(input, *, context): return {name: getattr(context, name) for name in NAMES}
    """
    assert json.loads(answer(folder, textwrap.dedent(code)).output or "") == {
        "case_id": "c1",
        "variant": "v1",
        "iteration": 2,
        "mode": "live",
        "input": "hi",
        "expected_output": None,
        "metadata": {"m": 1},
        "messages": [{"role": "user", "content": "hi"}],
        "config": {"tone": "kind"},
        "workspace": None,
    }


def test_a_wrong_attribute_of_the_context_names_the_nearest_and_the_line(folder: Path) -> None:
    code = "def fn(input, *, context):\n  return context.case_idd"
    with pytest.raises(TargetError, match=r"no 'case_idd'. Did you mean 'case_id'") as caught:
        answer(folder, code)
    assert caught.value.message.endswith("(mine.py:2)")


def test_context_cannot_be_changed(folder: Path) -> None:
    code = "def fn(input, *, context):\n  context.case_id = 'other'"
    with pytest.raises(TargetError, match="FrozenInstanceError"):
        answer(folder, code)


def test_evidence_is_taken_as_it_is_with_the_latency_added(folder: Path) -> None:
    code = (
        "from evalcore.model.evidence import Evidence, Metrics\n"
        "def fn(input): return Evidence('o', {'b': 'x'}, Metrics(cost_usd=0.5))\n"
    )
    evidence = answer(folder, code)
    assert (evidence.output, evidence.outputs, evidence.metrics.cost_usd) == ("o", {"b": "x"}, 0.5)
    assert evidence.metrics.latency_ms is not None


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("def fn(input): raise ValueError('no luck')", "python", "ValueError: no luck"),
        ("async def fn(input): raise KeyError", "python", "KeyError"),
        ("def fn(input): raise StopIteration(1)", "python", "StopIteration: 1"),
        ("import sys\ndef fn(input): sys.exit(3)", "python", "SystemExit: 3"),
        ("import sys\nasync def fn(input): sys.exit(3)", "python", "SystemExit: 3"),
        ("def fn(input): return None", "python", "returned NoneType; return text"),
        ("def fn(input): return object()", "python", "returned object; return text"),
        ("def fn(input): return float('nan')", "python", "JSON cannot hold"),
        ("def fn(input): return {'a': {1}}", "python", "JSON cannot hold.*set"),
        ("def fn(input): return [float('nan')]", "python", "JSON cannot hold"),
        (
            "from evalcore.model.evidence import Evidence\ndef fn(input): return Evidence(7)",
            "python",
            "output is int",
        ),
        (
            "from evalcore.errors import TargetError\n"
            "def fn(input): raise TargetError('quota', 'used up')",
            "quota",
            "used up",
        ),
        ("def fun(input): ...", "import", "Did you mean 'fun'"),
        ("1 / 0", "import", "ZeroDivisionError"),
    ],
)
def test_what_is_no_answer_is_an_error(folder: Path, code: str, kind: str, message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        answer(folder, code)
    assert caught.value.kind == kind


def test_sync_functions_that_overrun_block_nothing(folder: Path) -> None:
    folder.mkdir()
    code = (
        "import threading\nBARRIER, BEGUN = threading.Event(), []\n"
        "def fn(input): BEGUN.append(1); BARRIER.wait(); return ''"
    )
    (folder / "mine.py").write_text(code)
    target = build(Target("t", "python", {"callable": "mine:fn"}))
    work = work_in(folder)

    async def overrun() -> None:
        for _ in range(50):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await target.answer(work)

    asyncio.run(overrun())
    code_globals = work.imports.load("mine:fn").__globals__
    deadline = time.monotonic() + 60
    while len(code_globals["BEGUN"]) < 50:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    code_globals["BARRIER"].set()


def test_async_function_is_cancelled_when_its_time_is_up(folder: Path) -> None:
    folder.mkdir()
    code = (
        "import asyncio\nSEEN = []\n"
        "async def fn(input):\n"
        "  SEEN.append('begun')\n"
        "  try: await asyncio.sleep(1000)\n"
        "  except asyncio.CancelledError: SEEN.append('cancelled'); raise\n"
    )
    (folder / "mine.py").write_text(code)
    target = build(Target("t", "python", {"callable": "mine:fn"}))
    work = work_in(folder)

    seen = work.imports.load("mine:fn").__globals__["SEEN"]

    async def overrun() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as clock:

            def end_once_begun() -> None:
                if seen:
                    clock.reschedule(loop.time())
                else:
                    loop.call_later(0.01, end_once_begun)

            end_once_begun()
            await target.answer(work)

    with pytest.raises(TimeoutError):
        asyncio.run(overrun())
    assert seen == ["begun", "cancelled"]


@pytest.mark.parametrize("key", ["api_key", "url"])
def test_a_function_gets_the_value_of_a_variable(folder: Path, key: str) -> None:
    folder.mkdir()
    (folder / "mine.py").write_text(f"def fn(input, context): return context.config['{key}']")
    variant = Variant("v1", config={key: "${{ EVAL_K }}"})
    target = build(
        Target("t", "python", {"callable": "mine:fn"}),
        variant,
        folder=folder,
        environment={"EVAL_K": "value"},
    )
    assert asyncio.run(target.answer(work_in(folder))).output == "value"
