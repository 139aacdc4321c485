"""Captures become cases, or are refused: by a person's word, one at a time or many."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from evalcore.datasets.committing import Committed, DatasetChange, commit, lines_by_id
from evalcore.datasets.messages import answer_text, case_input
from evalcore.datasets.pending import (
    PendingCapture,
    PendingReader,
    chosen_captures,
    write_refusal,
)
from evalcore.datasets.versions import StoredDataset, read_dataset
from evalcore.errors import UsageError
from evalcore.redaction.personal import mask_personal
from evalcore.redaction.redactor import REDACTED
from evalcore.storage.store import ObjectStore

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
