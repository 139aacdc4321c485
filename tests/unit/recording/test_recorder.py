"""What is saved is found again, once and for everybody; what is not there is explained."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from evalcore.judging.prompts import fill
from evalcore.model.exchange import (
    ErrorKind,
    ProviderError,
    Reply,
    Request,
    StreamEvent,
    Usage,
    request_digest,
)
from evalcore.recording.content import Question
from evalcore.storage.layout import recording_key
from evalcore.storage.local import LocalStore
from tests.unit.recording.asking import ENDPOINT, LATER_RUN, RUN, ask, find, recorder, save

WHOLE = Reply(
    text="It is on its way.\u2028🚚",
    model="small-2026",
    tool_calls=({"id": "1", "name": "track", "arguments": {"order": 7}},),
    usage=Usage(12, 5),
    cost_usd=0.00012,
    latency_ms=123.4567,
    ttft_ms=45.6,
    finish_reason="stop",
    status=200,
    events=(StreamEvent(0, 1.5, {"delta": "It is"}), StreamEvent(1, 2.25, None)),
    attempts=3,
)
FAILURE = ProviderError(ErrorKind.RATE, "too many requests", 429, 1.5, 4)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.mark.parametrize("mode", ["record", "auto"])
def test_a_reply_is_replayed_with_all_that_was_measured(store: LocalStore, mode: str) -> None:
    saved = save(recorder(store, mode), ask(), WHOLE)
    assert saved == WHOLE
    assert find(recorder(store, "replay"), ask()) == replace(WHOLE, recorded=True)


def test_a_failure_is_replayed_as_the_same_failure(store: LocalStore) -> None:
    with pytest.raises(ProviderError) as saved:
        save(recorder(store, "record"), ask(), FAILURE)
    assert saved.value.__reduce__() == FAILURE.__reduce__()
    for mode in ("replay", "auto"):
        with pytest.raises(ProviderError) as caught:
            find(recorder(store, mode), ask())
        assert caught.value.__reduce__() == FAILURE.__reduce__()


def test_the_recording_stands_under_the_digest_of_the_request(store: LocalStore) -> None:
    save(recorder(store, "record"), ask(), WHOLE, 3, 2)
    digest = request_digest(ask().identity(), iteration=3, invocation=2)
    assert [info.key for info in store.list("recordings/")] == [recording_key(digest)]


def test_iterations_and_invocations_have_answers_of_their_own(store: LocalStore) -> None:
    writer = recorder(store, "record")
    turns = [(0, 0), (1, 0), (0, 1), (4, 2)]
    for turn in turns:
        save(writer, ask(), Reply(f"answer {turn}"), *turn)
    reader = recorder(store, "replay")
    found = [find(reader, ask(), *turn) for turn in turns]
    assert [reply.text for reply in found if reply] == [f"answer {turn}" for turn in turns]


@pytest.mark.parametrize(
    "other",
    [
        ask(endpoint=replace(ENDPOINT, base_url="http://elsewhere/v1")),
        ask(endpoint=replace(ENDPOINT, api_key="another-key-2")),
        ask(endpoint=replace(ENDPOINT, headers={"Authorization": "Bearer x1"})),
        ask(attempt_timeout_s=3.0),
        ask(stream=True),
        ask(parameters=MappingProxyType({"temperature": 0})),
    ],
    ids=["address", "key", "headers", "time-limit", "stream", "kind-of-mapping"],
)
def test_what_is_no_part_of_the_question_finds_the_recording(
    store: LocalStore, other: Request
) -> None:
    save(recorder(store, "record"), ask(), WHOLE)
    assert find(recorder(store, "replay"), other) is not None


def test_auto_asks_for_what_is_missing(store: LocalStore) -> None:
    assert find(recorder(store, "auto"), ask()) is None


def test_record_asks_although_it_is_recorded_and_the_first_answer_stays(store: LocalStore) -> None:
    save(recorder(store, "record", RUN), ask(), Reply("first"))
    again = recorder(store, "record", LATER_RUN)
    assert find(again, ask()) is None
    assert save(again, ask(), Reply("second")) == Reply("first")
    found = find(recorder(store, "replay"), ask())
    assert found is not None
    assert found.text == "first"


def test_a_resumed_run_does_not_ask_again_what_it_had_recorded(store: LocalStore) -> None:
    save(recorder(store, "record", RUN), ask(), WHOLE)
    resumed = recorder(store, "record", RUN)
    assert find(resumed, ask()) == replace(WHOLE, recorded=True)


def test_record_asks_for_each_of_two_equal_requests(store: LocalStore) -> None:
    one = recorder(store, "record", RUN)
    save(one, ask(), WHOLE)
    assert find(one, ask()) is None


def test_recording_again_replaces_the_failure_of_an_earlier_run(store: LocalStore) -> None:
    with pytest.raises(ProviderError):
        save(recorder(store, "record", RUN), ask(), FAILURE)
    assert save(recorder(store, "record", LATER_RUN), ask(), Reply("good")) == Reply("good")
    found = find(recorder(store, "replay"), ask())
    assert found is not None
    assert found.text == "good"


def test_a_failure_of_the_same_run_stays(store: LocalStore) -> None:
    one = recorder(store, "record", RUN)
    with pytest.raises(ProviderError):
        save(one, ask(), FAILURE)
    with pytest.raises(ProviderError, match="too many"):
        save(one, ask(), Reply("good"))


def test_many_writers_at_once_all_get_the_first_one_s_answer(store: LocalStore) -> None:
    one, other = recorder(store, "record", RUN), recorder(store, "auto", LATER_RUN)
    question = Question.of(ask(), iteration=0, invocation=0)

    async def all_at_once() -> list[Reply]:
        saves = [
            writer.save(ask(), question, Reply(f"{number}"))
            for number in range(50)
            for writer in (one, other)
        ]
        return await asyncio.gather(*saves)

    assert len({reply.text for reply in asyncio.run(all_at_once())}) == 1


def test_what_was_paid_is_saved_although_its_item_is_cancelled(store: LocalStore) -> None:
    async def cancelled() -> None:
        question = Question.of(ask(), iteration=0, invocation=0)
        saving = recorder(store, "record").save(ask(), question, WHOLE)
        task = asyncio.create_task(saving)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(list(store.list("recordings/"))) == 1

    asyncio.run(cancelled())


def missed(store: LocalStore, request: Request, **turn: int) -> str:
    with pytest.raises(ProviderError) as caught:
        find(recorder(store, "replay"), request, **turn)
    assert caught.value.kind == "recording"
    assert not caught.value.retryable
    assert caught.value.attempts == 0
    return caught.value.message


def test_a_miss_in_an_empty_store_says_how_to_record(store: LocalStore) -> None:
    message = missed(store, ask())
    assert "the store has no recordings; `--mode auto`" in message
    assert "`evalcore recordings import FOLDER` brings exported ones" in message


@pytest.mark.parametrize(
    ("request_", "turn", "said"),
    [
        (ask("Where is my parcel?"), {}, "messages[0].content at character 13"),
        (ask(parameters={"temperature": 0.2}), {}, "parameters.temperature 0 → 0.2"),
        (ask(parameters={}), {}, "parameters.temperature 0 → (absent)"),
        (ask(model="large"), {}, 'model "small" → "large"'),
        (ask(endpoint=replace(ENDPOINT, provider="b")), {}, 'provider "acme" → "b"'),
        (ask(), {"iteration": 1}, "iteration 0 → 1"),
        (ask(), {"iteration": 4, "invocation": 2}, "iteration 0 → 4; invocation 0 → 2"),
        (ask(tools=({"name": "track"},)), {}, 'tools[0] (absent) → {"name":"track"}'),
        (ask(response_schema={"type": "object"}), {}, 'response_schema null → {"type":"object"}'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_miss_tells_what_differs_from_the_nearest(
    store: LocalStore, request_: Request, turn: dict[str, int], said: str
) -> None:
    writer = recorder(store, "record")
    save(writer, ask("Is there anybody?", model="other"), WHOLE)
    save(writer, ask(), WHOLE)
    nearest = request_digest(ask().identity(), iteration=0, invocation=0)
    message = missed(store, request_, **turn)
    assert said in message
    assert nearest[:12] in message


@pytest.mark.parametrize(
    ("template", "output", "said"),
    [
        ("Is it kind? {{output}}", "Lima.", 'content at character 7 ("Is it calm'),
        ("Is it calm? {{output}}", "Lime.", "content in OUTPUT at character "),
    ],
    ids=["its prompt", "what it judges"],
)
def test_a_miss_of_a_judge_tells_what_changed_and_not_the_codes_of_its_fences(
    store: LocalStore, template: str, output: str, said: str
) -> None:
    judged = fill("Is it calm? {{output}}", {"output": "Lima."}).text
    save(recorder(store, "record"), ask(judged), WHOLE)
    message = missed(store, ask(fill(template, {"output": output}).text))
    assert said in message
    assert not re.search(r"<<OUTPUT [0-9a-f]", message)


@pytest.mark.parametrize(
    "damage",
    [b"", b"no frame at all", b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"],
    ids=["empty", "foreign", "huge"],
)
@pytest.mark.parametrize("mode", ["replay", "auto"])
def test_a_damaged_recording_is_named(store: LocalStore, mode: str, damage: bytes) -> None:
    digest = request_digest(ask().identity(), iteration=0, invocation=0)
    store.put(recording_key(digest), damage)
    with pytest.raises(ProviderError, match=f"recording {digest} cannot be read") as caught:
        find(recorder(store, mode), ask())
    assert caught.value.kind == "recording"


def test_a_recording_under_another_s_key_is_not_believed(store: LocalStore) -> None:
    save(recorder(store, "record"), ask(), WHOLE)
    save(recorder(store, "record"), ask("other"), WHOLE)
    one, other = (info.key for info in store.list("recordings/"))
    store.put(one, store.get(other).data)
    digest = one.rpartition("/")[2]
    mine = request_digest(ask().identity(), iteration=0, invocation=0)
    with pytest.raises(ProviderError, match=f"{digest} cannot be read"):
        find(recorder(store, "replay"), ask() if digest == mine else ask("other"))


def test_an_answer_that_json_cannot_hold_is_that_call_s_error(store: LocalStore) -> None:
    with pytest.raises(ProviderError, match="cannot be recorded") as caught:
        save(recorder(store, "record"), ask(), Reply("\ud800"))
    assert caught.value.kind == "recording"
