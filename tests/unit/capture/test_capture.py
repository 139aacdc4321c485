"""`capture`: what is taken, what is dropped, and that the caller notices nothing."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

import evalcore
from evalcore.capture import capture_counts, flush_captures
from evalcore.capture.decorator import MOST_MEMBERS, capture, serialised
from evalcore.capture.writer import QUEUE_BYTES, QUEUE_LIMIT, CaptureWriter
from evalcore.errors import StoreError, UsageError
from evalcore.jsonvalues import parse_storable
from evalcore.redaction.redactor import PROCESS
from evalcore.storage.local import LocalStore
from evalcore.storage.store import ObjectStore
from tests.support.captured import pending_bytes, pending_records


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def records(store: ObjectStore) -> list[dict[str, Any]]:
    assert flush_captures(30)
    return pending_records(store)


def answers(store: ObjectStore) -> list[tuple[Any, Any]]:
    return [(record["input"], record.get("output")) for record in records(store)]


def test_functions_of_every_kind_are_captured_and_stay_what_they_are(store: LocalStore) -> None:
    captured = capture("support", store=store)

    class Bot:
        @captured
        def method(self, question: str, *, tone: str = "kind") -> str:
            return f"{tone} {question}"

    @captured
    async def coroutine(question: str) -> dict[str, str]:
        return {"answer": question}

    @captured
    def generator(question: str) -> Generator[str, None, None]:
        yield question
        yield "!"

    @captured
    async def async_generator(question: str) -> AsyncGenerator[str, None]:
        yield question
        yield "?"

    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isgeneratorfunction(generator)
    assert inspect.isasyncgenfunction(async_generator)
    assert Bot().method("m", tone="terse") == "terse m"
    assert asyncio.run(coroutine("c")) == {"answer": "c"}
    assert list(generator("g")) == ["g", "!"]

    async def consume() -> list[str]:
        return [each async for each in async_generator("a")]

    assert asyncio.run(consume()) == ["a", "?"]
    assert answers(store) == [
        ({"question": "m", "tone": "terse"}, "terse m"),
        ("c", {"answer": "c"}),
        ("g", "g!"),
        ("a", "a?"),
    ]


def test_a_stream_that_is_not_read_to_its_end_is_captured_as_incomplete(store: LocalStore) -> None:
    closed = []

    @capture("support", store=store)
    def stream(question: str) -> Generator[str, None, None]:
        try:
            yield question
            yield "never read"
        finally:
            closed.append(question)

    begun = stream("q")
    next(begun)
    begun.close()
    assert closed == ["q"]
    (record,) = records(store)
    assert (record["output"], record["complete"]) == ("q", False)


def test_a_call_and_a_context_manager_capture(store: LocalStore) -> None:
    evalcore.capture("support", input="asked", output=[1, 2], store=store, metadata={"page": 3})
    with evalcore.capture("support", input={"q": 1}, store=store) as captured:
        captured.output = "answered"
    with (
        pytest.raises(ValueError, match="no"),
        evalcore.capture("support", input="fails", store=store),
    ):
        raise ValueError("no answer for jane@example.com")
    asked, answered, failed = records(store)
    assert (asked["input"], asked["output"], asked["metadata"]) == ("asked", [1, 2], {"page": 3})
    assert (answered["input"], answered["output"]) == ({"q": 1}, "answered")
    assert failed["error"] == {"kind": "ValueError", "message": "no answer for [redacted]"}
    assert "output" not in failed


def test_an_exception_goes_on_and_is_captured(store: LocalStore) -> None:
    @capture("support", store=store)
    def divide(number: int, by: int) -> float:
        return number / by

    with pytest.raises(ZeroDivisionError):
        divide(1, by=0)
    (record,) = records(store)
    assert record["input"] == {"number": 1, "by": 0}
    assert record["error"] == {"kind": "ZeroDivisionError", "message": "division by zero"}


def test_an_input_is_captured_as_it_was_when_the_call_began(store: LocalStore) -> None:
    @capture("support", store=store)
    def reply(messages: list[dict[str, str]]) -> str:
        messages.append({"role": "assistant", "content": "added"})
        messages[0]["content"] = "changed"
        return "done"

    reply([{"role": "user", "content": "original"}])
    assert answers(store) == [([{"role": "user", "content": "original"}], "done")]


def test_equal_inputs_are_written_once_and_counted(store: LocalStore) -> None:
    for _ in range(3):
        capture("support", input="again", output="x", store=store)
    (record,) = records(store)
    assert record["times"] == 3


def test_keys_and_personal_data_do_not_leave_the_process(store: LocalStore) -> None:
    PROCESS.learn(["s3cr3t-of-the-environment"])

    @capture("support", store=store, redact=lambda text: text.replace("Jane Doe", "someone"))
    def stream(question: str, account: dict[str, str]) -> Generator[str, None, None]:
        yield from ("write to jane", "@exam", "ple.com, ", "s3cr3t-of-the-", "environment")

    @capture("support", store=store)
    def deltas(question: str) -> Generator[dict[str, str], None, None]:
        yield from ({"delta": "sk-abcdefgh"}, {"delta": "12345678"})

    list(stream("I am Jane Doe, +49 151 2345 6789", {"password": "hunter2"}))
    list(deltas("x"))
    assert flush_captures(30)
    stored = pending_bytes(store)
    for personal in (b"Jane", b"jane", b"example.com", b"2345", b"hunter2", b"s3cr3t", b"sk-"):
        assert personal not in stored
    assert b"someone" in stored


def test_a_redaction_that_fails_drops_the_capture(store: LocalStore) -> None:
    def fails(text: str) -> str:
        raise RuntimeError(text)

    before = capture_counts().dropped.get("redaction", 0)
    capture("support", input="private", output="x", store=store, redact=fails)
    assert records(store) == []
    assert capture_counts().dropped["redaction"] == before + 1


class Hostile:
    """Raises wherever it is touched."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __str__(self) -> str:
        raise RuntimeError("str")

    def __hash__(self) -> int:
        raise RuntimeError("hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")


class HostileMapping(dict[str, Any]):
    def __len__(self) -> int:
        raise RuntimeError("len")

    def items(self) -> Any:
        raise RuntimeError("items")


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("str")


@dataclass
class Order:
    number: int
    lines: list[str]


@dataclass(slots=True)
class Slotted:
    number: int


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Hostile(), "<Hostile>"),
        (HostileMapping(a=1), {"a": 1}),
        (Order(7, ["x"]), {"number": 7, "lines": ["x"]}),
        (Slotted(7), {"number": 7}),
        ({1: b"bytes", (2, 3): {4}, None: 1e400}, None),
        (2**80, {"value": float(2**80)}),
        ("\ud800 alone", "\ufffd alone"),
        ([b"x", float("nan")], ["<bytes>", None]),
    ],
    ids=["object", "mapping", "dataclass", "slots", "keys", "integer", "surrogate", "bytes"],
)
def test_values_that_json_lacks_are_captured_as_text(
    store: LocalStore, value: Any, written: Any
) -> None:
    @capture("support", store=store)
    def same(value: Any) -> str:
        return "fine"

    assert same(value) == "fine"
    if written is None:
        assert flush_captures(30)
    else:
        assert answers(store) == [(written, "fine")]


@pytest.mark.parametrize(
    "value",
    [
        cyclic(),
        nested(2_000),
        "x" * 5_000_000,
        [{"content": "x"}] * MOST_MEMBERS,
        {"a": ["y" * 5_000_000]},
        [f"{number} {'y' * 2_000}" for number in range(140)],
        dict.fromkeys(range(MOST_MEMBERS + 1)),
        [*range(MOST_MEMBERS + 1)],
    ],
    ids=["cycle", "nested", "text", "parts", "inner text", "many texts", "mapping", "list"],
)
def test_what_is_too_large_is_dropped_and_counted(store: LocalStore, value: Any) -> None:
    @capture("support", store=store)
    def same(value: Any) -> Any:
        return value

    before = capture_counts().dropped.get("too large", 0)
    assert same(value) is value
    assert records(store) == []
    assert capture_counts().dropped["too large"] == before + 1


def conversation(turns: int) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    question = {"role": "user", "content": "Where is my parcel? " * 20}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    return [dict(question), asked, {"role": "tool", "content": "On its way."}] * turns


def test_a_long_conversation_is_captured_whole_as_it_was(store: LocalStore) -> None:
    messages = conversation(100)

    @capture("support", store=store)
    def answer(messages: list[dict[str, Any]], *, history: list[Any]) -> list[dict[str, Any]]:
        messages[0]["content"] = "changed"
        return conversation(120)

    answer(messages, history=list(range(1_000)))

    expected = {"messages": conversation(100), "history": list(range(1_000))}
    assert answers(store) == [(expected, conversation(120))]


class Pair(NamedTuple):
    first: int
    second: float


class Kind(StrEnum):
    GOOD = "good"


class Answer(BaseModel):
    text: str


@dataclass
class Step:
    name: str
    results: list[Any]


@pytest.mark.parametrize(
    ("value", "copy"),
    [
        (Step("find", [1, {"a": None}]), {"name": "find", "results": [1, {"a": None}]}),
        (datetime(2026, 5, 18, tzinfo=UTC), "2026-05-18T00:00:00+00:00"),
        (Kind.GOOD, "good"),
        (OrderedDict(a=(1, 2)), {"a": [1, 2]}),
        (Pair(1, 2.5), [1, 2.5]),
        ({"é\ud800"}, ["é\ufffd"]),
        (Decimal("1.50"), "1.50"),
        ({1: "a"}, {"1": "a"}),
        (Answer(text="x"), {"text": "x"}),
    ],
    ids=[
        "dataclass",
        "moment",
        "enumeration",
        "ordered",
        "tuple",
        "set",
        "decimal",
        "names",
        "model",
    ],
)
def test_what_is_no_json_is_serialised_as_json(value: Any, copy: Any) -> None:
    assert parse_storable(serialised(value)) == [copy]
    assert parse_storable(serialised(value, 2**80)) == [copy, float(2**80)]


def test_an_exception_that_cannot_be_shown_goes_on(store: LocalStore) -> None:
    @capture("support", store=store)
    def fail(question: str) -> None:
        raise HostileError(Hostile())

    with pytest.raises(HostileError):
        fail("q")
    (record,) = records(store)
    assert record["error"]["kind"] == "HostileError"


class AwayStore(LocalStore):
    """A store that refuses writes until it is `back`."""

    back = False

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        if not self.back:
            raise StoreError("away")
        return super().put_if_absent(key, data)


def test_captures_wait_while_the_store_is_away_and_are_dropped_beyond_a_bound(
    tmp_path: Path,
) -> None:
    store = AwayStore(tmp_path / "store")
    dropped = capture_counts().dropped.get("store", 0)
    for number in range(600):
        capture("support", input=f"question {number}", output="x", store=store)
    assert flush_captures(30)
    assert list(store.list("")) == []
    assert capture_counts().dropped["store"] == dropped + 100
    store.back = True
    assert len(records(store)) == 500


@pytest.fixture
def stopped_writer(monkeypatch: pytest.MonkeyPatch) -> CaptureWriter:
    """A writer of this process whose thread does not start."""
    writer = CaptureWriter()
    monkeypatch.setattr(writer, "_start", lambda: None)
    monkeypatch.setattr("evalcore.capture.decorator.PROCESS_WRITER", writer)
    return writer


def test_a_full_queue_drops_and_counts(store: LocalStore, stopped_writer: CaptureWriter) -> None:
    for number in range(QUEUE_LIMIT + 5):
        capture("support", input=number, output="x", store=store)
    assert stopped_writer.counts() == (QUEUE_LIMIT, 0, {"queue full": 5})


@pytest.mark.parametrize("value", ["x" * 200_000, ["x" * 199_990]], ids=["texts", "members"])
def test_a_queue_of_many_bytes_drops_and_counts(
    store: LocalStore, stopped_writer: CaptureWriter, value: Any
) -> None:
    for _ in range(QUEUE_LIMIT):
        capture("support", input=value, output="x", store=store)
    waiting, _, dropped = stopped_writer.counts()
    assert waiting * 200_000 == pytest.approx(QUEUE_BYTES, rel=0.01)
    assert dropped == {"queue full": QUEUE_LIMIT - waiting}


def test_a_share_of_calls_is_captured_without_touching_the_programs_random_numbers(
    store: LocalStore,
) -> None:
    @capture("support", sample=0.5, store=store)
    def some(number: int) -> int:
        return number

    @capture("support", sample=0, store=store)
    def none(number: int) -> int:
        return number

    random.seed(5)
    expected = random.random()
    random.seed(5)
    for number in range(200):
        some(number)
        none(number)
    assert random.random() == expected
    assert 40 < len(records(store)) < 160


@pytest.mark.parametrize(
    "options",
    [{"sample": 2}, {"sample": True}, {"sample": "all"}, {"redact": "email"}, {"redact": ["x"]}],
)
def test_parameters_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="capture: "):
        capture("support", **options)


@pytest.mark.parametrize("name", ["", " ", "support@3", None])
def test_a_name_that_no_dataset_can_have_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="dataset is a name"):
        capture(name)
