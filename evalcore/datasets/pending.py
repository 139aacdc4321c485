"""Captures that wait, read from the store, and what becomes of them: cases, or refusals."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson

from evalcore.datasets.store import (
    Committed,
    DatasetChange,
    StoredDataset,
    commit,
    lines_by_id,
    read_dataset,
)
from evalcore.errors import ObjectNotFoundError, StoreError, UsageError
from evalcore.planning.spool import ZstdFrameError, decompress_frame
from evalcore.redaction.personal import mask_personal
from evalcore.redaction.redactor import REDACTED
from evalcore.storage.store import ObjectStore

_ROLES: Final = {
    "developer": "system",
    "human": "user",
    "model": "assistant",
    "ai": "assistant",
    "function": "tool",
}
_KNOWN_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})


def case_input(value: Any) -> Any:
    """Return an input as a case has it; messages of other dialects are translated.

    A list that is no conversation, a number or null becomes `{"value": …}`.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    messages = [case_message(each) for each in value] if isinstance(value, list) else []
    if not messages or any(message is None for message in messages):
        return {"value": value}
    return messages


def case_message(message: Any) -> dict[str, Any] | None:
    """Return a message as files have it: text or segments as content; None if it is none."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        return None
    role = _ROLES.get(message["role"], message["role"])
    if role not in _KNOWN_ROLES:
        return None
    content = message.get("content")
    if isinstance(content, list):
        texts = [_text_of_segment(segment) for segment in content]
        content = "\n".join(text for text in texts if text)
    elif content is not None and not isinstance(content, str | Mapping):
        content = json.dumps(content, ensure_ascii=False)
    if content is None and not message.get("tool_calls"):
        content = ""
    named = {name: member for name, member in message.items() if name not in {"role", "content"}}
    return {"role": role, "content": content, **named}


def answer_text(value: Any) -> str:
    """Return an output as a fixture's text: text as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text_of_segment(segment: Any) -> str:
    if isinstance(segment, str):
        return segment
    if isinstance(segment, Mapping):
        text = segment.get("text", segment.get("value"))
        if isinstance(text, str) and segment.get("type", "text") in {"text", "input_text"}:
            return text
        return f"[{segment.get('type', 'segment')}]"
    return json.dumps(segment, ensure_ascii=False)


SHOWN_ID: Final = 12
"""Characters of an id that stand in names of cases and in listings."""
_FETCHERS: Final = 16

_Records = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class PendingCapture:
    """A captured input and its first output. `at` is ISO 8601 in UTC, of the first time.

    `id` is the SHA-256 of the input: equal inputs are one capture, which came `times` times.
    `record` is the whole line as it was captured.
    """

    id: str
    at: str
    record: Mapping[str, Any]
    times: int = 1

    @property
    def case_id(self) -> str:
        """The id of the case that the capture becomes."""
        return f"capture-{self.id[:SHOWN_ID]}"

    @property
    def input(self) -> Any:
        """The captured input."""
        return self.record.get("input")

    @property
    def output(self) -> Any:
        """The captured output; None if the call ended in an error."""
        return self.record.get("output")

    @property
    def error(self) -> Mapping[str, Any] | None:
        """Kind and message of the exception that ended the call, if one did."""
        return self.record.get("error")


class PendingReader:
    """Reads the captures that wait in a store; each of its objects once, so that pages are cheap.

    Safe in several threads.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._batches: dict[str, dict[str, _Records]] = {}
        self._refused: dict[str, frozenset[str]] = {}
        self._lock = threading.Lock()

    def read(self, dataset: StoredDataset) -> tuple[PendingCapture, ...]:
        """Return the captures that were neither promoted nor refused, the first ones first.

        Lists the dataset's pending objects, and reads those that it has not read yet. An object
        that cannot be read raises `StoreError`.
        """
        captures: dict[str, PendingCapture] = {}
        with self._lock:
            decided = self._decided(dataset)
            for record in chain.from_iterable(self._fetch(dataset).values()):
                identity, times = record["id"], record.get("times", 1)
                earlier = captures.get(identity)
                if earlier is not None:
                    captures[identity] = replace(earlier, times=earlier.times + times)
                elif identity not in decided:
                    captures[identity] = PendingCapture(identity, record["at"], record, times)
        return tuple(captures.values())

    def sweep(self, dataset: StoredDataset) -> None:
        """Delete the objects all of whose captures are decided."""
        with self._lock:
            decided = self._decided(dataset)
            for key, records in self._fetch(dataset).items():
                if all(record["id"] in decided for record in records):
                    self._store.delete(key)

    def _decided(self, dataset: StoredDataset) -> set[str]:
        """Return the ids of all captures that were promoted or refused."""
        keys = [info.key for info in self._store.list(dataset.keys.refused_prefix)]
        for key in keys:
            if key not in self._refused:
                self._refused[key] = frozenset(orjson.loads(self._store.get(key).data)["captures"])
        return dataset.decided_captures().union(*(self._refused[key] for key in keys))

    def _fetch(self, dataset: StoredDataset) -> dict[str, _Records]:
        """Read the objects that are new; return the records by object, the oldest first."""
        prefix = dataset.keys.pending_prefix
        keys = [info.key for info in self._store.list(prefix)]
        known = self._batches.get(prefix, {})
        missing = [key for key in keys if key not in known]
        if missing:
            with ThreadPoolExecutor(_FETCHERS) as pool:
                known = known | dict(zip(missing, pool.map(self._batch, missing), strict=True))
        self._batches[prefix] = {key: known[key] for key in keys}
        return self._batches[prefix]

    def _batch(self, key: str) -> _Records:
        try:
            data = decompress_frame(self._store.get(key).data)
            return tuple(orjson.loads(line) for line in data.splitlines())
        except ObjectNotFoundError:  # decided and deleted a moment ago
            return ()
        except (ZstdFrameError, ValueError) as error:
            raise StoreError(f"{key} holds no captures that can be read: {error}") from error


def write_refusal(store: ObjectStore, dataset: StoredDataset, captures: Iterable[str]) -> None:
    """Note that captures were refused; they never wait again."""
    ids = sorted(captures)
    key = dataset.keys.refused(datetime.now(UTC), secrets.token_bytes(6))
    store.put_if_absent(key, orjson.dumps({"captures": ids}))


def chosen_captures(
    pending: Collection[PendingCapture], ids: Collection[str]
) -> tuple[list[PendingCapture], list[str]]:
    """Return the captures that ids name, and the ids that name none or several.

    An id may be written as its beginning, or as the id of the case that it becomes.
    """
    chosen: list[PendingCapture] = []
    unknown = []
    for written in ids:
        bare = written.removeprefix("capture-")
        matches = [capture for capture in pending if bare and capture.id.startswith(bare)]
        if len(matches) == 1:
            chosen.append(matches[0])
        else:
            unknown.append(written)
    return list({capture.id: capture for capture in chosen}.values()), unknown


_TAG: Final = "captured"
_UNSET: Final[Any] = object()


@dataclass(frozen=True)
class Acceptance:
    """What a person said of a capture that becomes a case.

    `input` replaces the captured one. `assertions` are mappings as files write them. Each text of
    `personal` is masked wherever it stands in the case. `expect_output` gives the case the captured
    output as its answer and its expected output, `reference_output` as its expected output only.
    """

    capture: str
    input: Any = _UNSET
    assertions: Sequence[Mapping[str, Any]] = ()
    personal: Collection[str] = ()
    tags: Sequence[str] = ()
    expect_output: bool = False
    reference_output: bool = False


class Promoted(NamedTuple):
    """What a promotion did; `skipped` are captures that others have decided on meanwhile."""

    committed: Committed
    cases: tuple[Mapping[str, Any], ...]
    skipped: tuple[str, ...]


def promote(
    store: ObjectStore,
    name: str,
    acceptances: Sequence[Acceptance],
    *,
    reader: PendingReader | None = None,
) -> Promoted:
    """Make cases of captures, in a new version; they wait no more from then on.

    Captures are named by id or by the beginning of one. Raises `UsageError`, and writes nothing, if
    one of them does not wait.
    """
    reader = reader or PendingReader(store)
    dataset = read_dataset(store, name)
    captures = _named(reader.read(dataset), [each.capture for each in acceptances], name)
    accepted = [replace(each, capture=capture.id) for each, capture in
                zip(acceptances, captures, strict=True)]  # fmt: skip
    cases = {each.id: case_of(each, acceptance)
             for each, acceptance in zip(captures, accepted, strict=True)}  # fmt: skip
    undecided: dict[str, Mapping[str, Any]] = {}

    def propose(current: StoredDataset) -> DatasetChange:
        decided = current.decided_captures()
        undecided.clear()
        undecided.update((key, case) for key, case in cases.items() if key not in decided)
        return DatasetChange("promote", lines_by_id(undecided.values()), tuple(undecided))

    committed = commit(store, name, propose)
    reader.sweep(read_dataset(store, name))
    skipped = tuple(identity for identity in cases if identity not in undecided)
    return Promoted(committed, tuple(undecided.values()), skipped)


def refuse(
    store: ObjectStore, name: str, ids: Sequence[str], *, reader: PendingReader | None = None
) -> int:
    """Refuse captures: they wait no more, and their text is deleted as soon as it can be.

    Return how many. Raises `UsageError`, and refuses none, if one of them does not wait.
    """
    reader = reader or PendingReader(store)
    dataset = read_dataset(store, name)
    captures = _named(reader.read(dataset), ids, name)
    if captures:
        write_refusal(store, dataset, [capture.id for capture in captures])
        reader.sweep(dataset)
    return len(captures)


def case_of(capture: PendingCapture, acceptance: Acceptance) -> dict[str, Any]:
    """Return the case that an accepted capture becomes, as a line of a file of tests says it."""
    metadata = {"captured_at": capture.at, "times": capture.times}
    if capture.record.get("function"):
        metadata["function"] = capture.record["function"]
    if isinstance(capture.record.get("metadata"), Mapping):
        metadata |= capture.record["metadata"]
    case: dict[str, Any] = {
        "id": capture.case_id,
        "input": case_input(capture.input if acceptance.input is _UNSET else acceptance.input),
        "tags": list(dict.fromkeys([_TAG, *acceptance.tags])),
        "metadata": metadata,
    }
    if acceptance.assertions:
        case["assertions"] = [dict(assertion) for assertion in acceptance.assertions]
    if acceptance.expect_output or acceptance.reference_output:
        if "output" not in capture.record:
            raise UsageError(
                f"capture {capture.id[:12]} ended in an error and has no output to expect; promote "
                "it without --expect-output"
            )
        case["expected_output"] = capture.output
        if acceptance.expect_output:
            case["fixtures"] = {"output": answer_text(capture.output)}
    return masked(case, acceptance.personal)


def masked(case: dict[str, Any], personal: Collection[str]) -> dict[str, Any]:
    """Return a case without these texts, and without personal data that a pattern recognises.

    Only what the case says is masked, not its id.
    """
    marked = sorted(filter(None, personal), key=len, reverse=True)

    def cover(value: Any) -> Any:
        if isinstance(value, str):
            for text in marked:
                value = value.replace(text, REDACTED)
            return mask_personal(value) if marked else value
        if isinstance(value, Mapping):
            return {cover(name): cover(member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return [cover(member) for member in value]
        return value

    if not marked:
        return case
    fixed = ("id", "tags")
    return {name: value if name in fixed else cover(value) for name, value in case.items()}


def _named(
    pending: Sequence[PendingCapture], ids: Sequence[str], name: str
) -> list[PendingCapture]:
    captures, unknown = chosen_captures(pending, ids)
    if unknown:
        listed = ", ".join(f"'{text}'" for text in unknown[:10])
        raise UsageError(
            f"no single pending capture of '{name}' is {listed}; `evalcore dataset show {name} "
            "--pending` lists them with their ids"
        )
    if len(captures) != len(ids):
        raise UsageError(f"a pending capture of '{name}' is named twice")
    return captures
