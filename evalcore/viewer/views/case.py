"""The events of an executed workflow as a timeline: a bar for each block, a mark for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import orjson
from pydantic import BaseModel, BeforeValidator, Field

from evalcore.analytics.cases import CaseItem, CaseRow, ItemMark, read_case, read_items, read_marks
from evalcore.errors import ObjectNotFoundError, RunNotFoundError
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.planning.codec import decode_evidence
from evalcore.recording.library import Library
from evalcore.report.view import shown_text
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun, open_run
from evalcore.storage.store import ObjectStore
from evalcore.viewer.security import Chosen
from evalcore.viewer.views.calls import Exchanges, read_exchanges
from evalcore.viewer.views.opened import OpenedRun
from evalcore.viewer.views.texts import (
    PageText,
    TextBudget,
    WordDifference,
    conversation_of,
    word_difference,
)
from evalcore.workflow.events import Event
from evalcore.workflow.run_store import ObjectRunStore

MOST_EVENTS: Final = 300
_DATA_CHARACTERS: Final = 1_500
_TONES: Final = {"completed": "passed", "failed": "failed"}


class TimelineRow(NamedTuple):
    """An event. `left` and `width` (percent of the whole) make its bar; a mark has no width.

    `at_ms` is when it happened, `took_ms` what ended with it took.
    """

    sequence: int
    type: str
    block: str | None
    at_ms: float
    took_ms: float | None
    tone: str
    left: float
    width: float
    data: PageText | None


class Timeline(NamedTuple):
    """The events in their order; `omitted` counts those that are left out at the end."""

    rows: tuple[TimelineRow, ...]
    total_ms: float
    omitted: int = 0


def read_timeline(run: StoredRun, item: int, budget: TextBudget) -> Timeline | None:
    """Return the timeline of an item's last execution; None if no events are stored."""
    events = asyncio.run(ObjectRunStore(run.store, run.keys.item_events(item)).load_events())
    return timeline_of(events, budget) if events else None


def timeline_of(events: Sequence[Event], budget: TextBudget) -> Timeline:
    """Return the timeline of the events of one execution."""
    total_ms = max(event.at_ms for event in events) or 1.0
    started: dict[tuple[str, str | None], list[float]] = {}
    rows = []
    for event in events[:MOST_EVENTS]:
        began = _began(event, started)
        took = None if began is None else event.at_ms - began
        left = event.at_ms if began is None else began
        rows.append(
            TimelineRow(
                event.sequence,
                event.type.replace("_", " "),
                event.block,
                event.at_ms,
                took,
                _TONES.get(event.type.rpartition("_")[2], "other"),
                round(100 * left / total_ms, 2),
                0.0 if took is None else round(100 * took / total_ms, 2),
                budget.cut(dict(event.data), _DATA_CHARACTERS) if event.data else None,
            )
        )
    return Timeline(tuple(rows), total_ms, len(events) - len(rows))


def _began(event: Event, started: dict[tuple[str, str | None], list[float]]) -> float | None:
    """Return when what ends with an event (`block_failed`) began; note a beginning."""
    subject, _, what = event.type.rpartition("_")
    starts = started.setdefault((subject, event.block), [])
    if what == "started":
        starts.append(event.at_ms)
    return starts.pop() if what in _TONES and starts else None


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


MOST_ITEMS: Final = 12
_INPUT_CHARACTERS: Final = 20_000
_OUTPUT_CHARACTERS: Final = 20_000
_OUTPUTS_CHARACTERS: Final = 60_000
EXPECTED: Final = "expected"
BASELINE: Final = "baseline"
NOTHING: Final = "none"
_VARIANT: Final = "variant:"


class CaseAddress(BaseModel):
    """What an address chooses of a case; what is left out chooses all, or what suits.

    `id` is that of the case, also where it stands in the path.
    """

    id: str = ""
    group: Chosen = None
    variant: Chosen = None
    iteration: Annotated[
        Annotated[int, Field(ge=0, lt=10**9)] | None, BeforeValidator(lambda text: text or None)
    ] = None
    reference: Chosen = None


class Reference(NamedTuple):
    """A text that outputs can be compared with: `key` in the address, `label` for people."""

    key: str
    label: str


class ItemTrace(NamedTuple):
    """What happened within an item: its calls with their messages, and its workflow's events."""

    exchanges: Exchanges
    timeline: Timeline | None
    state: PageText | None


class CasePageFacts(NamedTuple):
    """The page. `trace` is None unless a single item is shown. `unlisted` counts the items that
    match the address and are not among `items`.
    """

    rows: tuple[CaseRow, ...]
    case: Case
    text: Mapping[str, Any]
    marks: Mapping[tuple[str, int], ItemMark]
    items: tuple[ItemView, ...]
    unlisted: int
    references: tuple[Reference, ...]
    reference: str
    trace: ItemTrace | None
    neighbours: tuple[CaseRow | None, CaseRow | None]


def read_case_page(opened: OpenedRun, address: CaseAddress) -> CasePageFacts | None:
    """Return the page of a case; None if the run has no result of it."""
    table, tables = opened.cases, opened.connection
    if table is None or tables is None:
        return None
    rows = table.rows_of(address.id, address.group)
    if not rows and address.group is None:
        # Comparisons match cases by their ids alone.
        rows = table.rows_of(address.id, table.groups_of([address.id]).get(address.id))
    if not rows:
        return None
    plan = opened.manifest.plan
    case = planned_case(opened, rows[0].case_number)
    first = rows[0].case_number * plan.items_per_case
    marks = read_marks(tables, range(first, first + plan.items_per_case), plan.iterations)
    chosen = [mark for mark in marks if _matches(mark, address)]
    listed = _listed(chosen, plan.iterations)
    references = _references(opened, case, [row.variant for row in rows])
    reference = _chosen_reference(references, address)
    most = max(1_000, min(_OUTPUT_CHARACTERS, _OUTPUTS_CHARACTERS // max(1, len(listed))))
    texts = _reference_texts(opened, case, marks, reference, most)
    budget = TextBudget()
    text = _case_text(case, budget)
    read = read_items(tables, [mark.item for mark in listed], most_characters=most)
    store = opened.run.store
    items = tuple(
        item_view(row, _reference_of(row, texts, reference), store, budget, most) for row in read
    )
    return CasePageFacts(
        rows,
        case,
        text,
        {(mark.variant, mark.iteration): mark for mark in marks},
        items,
        len(chosen) - len(listed),
        references,
        reference,
        _trace(opened.run, items[0], budget) if len(items) == 1 else None,
        (table.neighbours(rows[0].number)[0], table.neighbours(rows[-1].number)[1]),
    )


def planned_case(opened: OpenedRun, case_number: int) -> Case:
    """Return a case as it was planned; raises `DamagedRunError`."""
    return opened.run.case(case_number, opened.manifest.plan)


def _matches(mark: ItemMark, address: CaseAddress) -> bool:
    return (address.variant is None or mark.variant == address.variant) and (
        address.iteration is None or mark.iteration == address.iteration
    )


def _listed(chosen: Sequence[ItemMark], iterations: int) -> Sequence[ItemMark]:
    """Return the items that are shown side by side: all that match, or one iteration of each."""
    if len(chosen) > MOST_ITEMS and iterations > 1:
        worst = next((mark for mark in chosen if mark.end != "passed"), chosen[0])
        chosen = [mark for mark in chosen if mark.iteration == worst.iteration]
    return chosen[:MOST_ITEMS]


def _references(opened: OpenedRun, case: Case, variants: Sequence[str]) -> tuple[Reference, ...]:
    references = []
    if len(variants) > 1:
        baseline = opened.run.definition.baseline
        ordered = sorted(variants, key=lambda name: name != baseline)
        references += [Reference(f"{_VARIANT}{name}", f"variant {name}") for name in ordered]
    if opened.manifest.settings.get("baseline"):
        run_id = opened.manifest.settings["baseline"]["run"]
        references.append(Reference(BASELINE, f"baseline run {run_id}"))
    if shown_text(case.expected_output):
        references.append(Reference(EXPECTED, "expected output"))
    return tuple(references)


def _chosen_reference(references: Sequence[Reference], address: CaseAddress) -> str:
    """Return the key of the text to compare with: the chosen one, else the likeliest."""
    keys = [reference.key for reference in references]
    if address.reference == NOTHING or not keys:
        return NOTHING
    return address.reference if address.reference in keys else keys[0]


def _reference_texts(
    opened: OpenedRun, case: Case, marks: Sequence[ItemMark], reference: str, most: int
) -> Mapping[tuple[str, int], str]:
    """Return the texts to compare with by variant and iteration; the variant "" is any."""
    if reference == EXPECTED:
        return {("", -1): shown_text(case.expected_output) or ""}
    rows: Sequence[CaseItem] = ()
    if reference == BASELINE:
        rows = _baseline_items(opened, case, most)
        return {(row.variant, row.iteration): row.output for row in rows if row.output is not None}
    if reference.startswith(_VARIANT) and opened.connection is not None:
        name = reference.removeprefix(_VARIANT)
        numbers = [mark.item for mark in marks if mark.variant == name]
        rows = read_items(opened.connection, numbers, most_characters=most)
    return {("", row.iteration): row.output for row in rows if row.output is not None}


def _baseline_items(opened: OpenedRun, case: Case, most: int) -> Sequence[CaseItem]:
    named = opened.manifest.settings["baseline"]
    earlier = open_run(opened.run.store, named["suite"], named["run"])
    try:
        plan = earlier.manifest().plan
        with earlier.result_files(plan) as parts:
            return read_case(parts, case.id, case.group, most_characters=most)
    except (ObjectNotFoundError, RunNotFoundError):
        return ()


def _reference_of(
    row: CaseItem, texts: Mapping[tuple[str, int], str], reference: str
) -> str | None:
    if reference == f"{_VARIANT}{row.variant}":
        return None
    keys = ((row.variant, row.iteration), ("", row.iteration), ("", -1), (row.variant, 0), ("", 0))
    return next((texts[key] for key in keys if key in texts), None)


def _case_text(case: Case, budget: TextBudget) -> dict[str, Any]:
    """Return the texts of a case; `conversation` stands for `input` where that is one."""
    conversation = conversation_of(case.input, budget)
    shown = {
        "input": None if conversation is not None else case.input,
        "expected": case.expected_output,
        "criteria": case.criteria,
        "metadata": dict(case.metadata) or None,
    }
    cut = {name: budget.cut(value, _INPUT_CHARACTERS) for name, value in shown.items()}
    return {"conversation": conversation, **cut}


def _trace(run: StoredRun, item: ItemView, budget: TextBudget) -> ItemTrace:
    details = {} if item.evidence is None else item.evidence.details
    return ItemTrace(
        read_exchanges(details, Library(run.store), budget),
        read_timeline(run, item.row.item, budget),
        budget.cut(details.get("state") or None, _INPUT_CHARACTERS),
    )
