"""A work item as the page of its case shows it: output, difference, assertions, calls, events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from evalcore.analytics.cases import CaseItem
from evalcore.errors import ObjectNotFoundError
from evalcore.model.evidence import Evidence
from evalcore.planning.codec import decode_evidence
from evalcore.storage.layout import blob_key
from evalcore.storage.store import ObjectStore
from evalcore.viewer.texts import PageText, TextBudget
from evalcore.viewer.word_differences import WordDifference, word_difference

_MOST_ASSERTIONS: Final = 60
_MOST_BLOCKS: Final = 40
_MOST_FILES: Final = 20
_BLOCK_CHARACTERS: Final = 2_000
_ASSERTION_CHARACTERS: Final = 2_000
_UNMET_FIRST: Final = {"error": 0, "failed": 1, "blocked": 2}
_PLAIN_DETAILS: Final = ("reasoning", "votes", "assertions")


class AssertionView(NamedTuple):
    """An assertion's result. `aspects` are the criteria of judges, `more` the other details."""

    entry: Mapping[str, Any]
    actual: PageText | None
    expected: PageText | None
    reasoning: PageText | None
    votes: tuple[str, ...]
    aspects: tuple[Mapping[str, Any], ...]
    more: PageText | None


class BlockView(NamedTuple):
    """The output of a block of a workflow."""

    block: str
    text: PageText


class ItemView(NamedTuple):
    """A work item. `evidence` is None where none is stored, or its blob is gone.

    `difference` is that of the output from the chosen text; None where there is nothing to compare
    or too little in common.
    """

    row: CaseItem
    output: PageText | None
    difference: WordDifference | None
    is_unlike: bool
    blocks: tuple[BlockView, ...]
    assertions: tuple[AssertionView, ...]
    unlisted_assertions: int
    files: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    evidence: Evidence | None


# Of texts with fewer words in common a difference says nothing.
_LEAST_SHARED: Final = 0.15


def item_view(
    row: CaseItem, reference: str | None, store: ObjectStore, budget: TextBudget, most: int
) -> ItemView:
    """Return an item with its output's difference from `reference`, if that is not None.

    `most` bounds the characters of its output.
    """
    output = budget.cut(row.output, most)
    if output is not None and row.output_is_cut:
        omitted = (row.output_characters or 0) - len(output.text)
        output = output._replace(omitted=max(1, omitted))
    difference = None
    if reference is not None and output is not None:
        difference = word_difference(reference[:most], output.text)
    is_unlike = difference is not None and difference.shared < _LEAST_SHARED
    evidence = read_evidence(row, store)
    details = {} if evidence is None else evidence.details
    listed = sorted(row.assertions or (), key=lambda each: _UNMET_FIRST.get(each["outcome"], 3))
    notes = [*_texts(details.get("errors")), *_texts(details.get("warnings"))]
    return ItemView(
        row,
        output,
        None if is_unlike else difference,
        is_unlike,
        _blocks(evidence, budget),
        tuple(_assertion(entry, budget) for entry in listed[:_MOST_ASSERTIONS]),
        max(0, len(listed) - _MOST_ASSERTIONS),
        tuple(_files(details, budget)),
        tuple(notes),
        evidence,
    )


def read_evidence(row: CaseItem, store: ObjectStore) -> Evidence | None:
    """Return the evidence of an item, from its blob where it is large; None if there is none."""
    text: str | bytes | None = row.evidence
    if row.evidence_ref is not None:
        try:
            text = store.get(blob_key(row.evidence_ref)).data
        except ObjectNotFoundError:
            return None
    return None if text is None else decode_evidence(orjson.loads(text))


def _blocks(evidence: Evidence | None, budget: TextBudget) -> tuple[BlockView, ...]:
    if evidence is None:
        return ()
    views = []
    for block, output in list(evidence.outputs.items())[:_MOST_BLOCKS]:
        text = budget.cut(output, _BLOCK_CHARACTERS)
        if text is not None:
            views.append(BlockView(block, text))
    return tuple(views)


def _assertion(entry: Mapping[str, Any], budget: TextBudget) -> AssertionView:
    details = _details(entry.get("details"))
    more = {name: value for name, value in details.items() if name not in _PLAIN_DETAILS}
    aspects = details.get("assertions")
    return AssertionView(
        entry,
        budget.cut(entry["actual"], _ASSERTION_CHARACTERS),
        budget.cut(entry["expected"], _ASSERTION_CHARACTERS),
        budget.cut(details.get("reasoning"), _ASSERTION_CHARACTERS),
        tuple(_vote(vote) for vote in _mappings(details.get("votes"))),
        tuple(_mappings(aspects)),
        budget.cut(more or None, _ASSERTION_CHARACTERS),
    )


def _details(text: Any) -> Mapping[str, Any]:
    if not isinstance(text, str):
        return {}
    value = orjson.loads(text)
    return value if isinstance(value, Mapping) else {}


def _vote(vote: Mapping[str, Any]) -> str:
    """Return who voted, and how, on one line."""
    named = [str(vote[name]) for name in ("judge", "model", "annotator") if vote.get(name)]
    voted = [
        f"{name} {value if isinstance(value, str) else orjson.dumps(value).decode()}"
        for name, value in vote.items()
        if name not in {"judge", "model", "annotator"} and value not in (None, [], {})
    ]
    return ": ".join(part for part in (", ".join(named), ", ".join(voted)) if part)


def _files(details: Mapping[str, Any], budget: TextBudget) -> Sequence[Mapping[str, Any]]:
    """Return the files that the target changed, with the beginning of their differences."""
    return [
        {**entry, "text": budget.cut(entry.get("diff") or entry.get("content"), _BLOCK_CHARACTERS)}
        for entry in _mappings(details.get("file_changes"))[:_MOST_FILES]
    ]


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
