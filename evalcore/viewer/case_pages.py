"""What the page of a case shows: its rows, the items that an address chooses, what to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from evalcore.analytics.cases import CaseItem, CaseRow, ItemMark, read_case, read_items, read_marks
from evalcore.errors import ObjectNotFoundError, RunNotFoundError
from evalcore.model.suite import Case
from evalcore.recording.library import Library
from evalcore.report.view import shown_text
from evalcore.storage.runs import StoredRun, open_run
from evalcore.viewer.conversations import MessageList, conversation_of
from evalcore.viewer.exchanges import Exchanges, read_exchanges
from evalcore.viewer.item_views import ItemView, item_view
from evalcore.viewer.opened_runs import OpenedRun
from evalcore.viewer.texts import PageText, TextBudget
from evalcore.viewer.timelines import Timeline, read_timeline

MOST_ITEMS: Final = 12
_INPUT_CHARACTERS: Final = 20_000
_OUTPUT_CHARACTERS: Final = 20_000
_OUTPUTS_CHARACTERS: Final = 60_000
EXPECTED: Final = "expected"
BASELINE: Final = "baseline"
NOTHING: Final = "none"
_VARIANT: Final = "variant:"


@dataclass(frozen=True, slots=True)
class CaseAddress:
    """What an address chooses of a case; None chooses all, or what suits."""

    case_id: str
    group: str | None = None
    variant: str | None = None
    iteration: int | None = None
    reference: str | None = None


class Reference(NamedTuple):
    """A text that outputs can be compared with: `key` in the address, `label` for people."""

    key: str
    label: str


class CaseText(NamedTuple):
    """The texts of a case; `conversation` stands for `input` where that is one."""

    conversation: MessageList | None
    input: PageText | None
    expected: PageText | None
    criteria: PageText | None
    metadata: PageText | None


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
    text: CaseText
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
    rows = table.rows_of(address.case_id, address.group)
    if not rows and address.group is None:
        # Comparisons match cases by their ids alone.
        rows = table.rows_of(
            address.case_id, table.groups_of([address.case_id]).get(address.case_id)
        )
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


def _case_text(case: Case, budget: TextBudget) -> CaseText:
    conversation = conversation_of(case.input, budget)
    return CaseText(
        conversation,
        None if conversation is not None else budget.cut(case.input, _INPUT_CHARACTERS),
        budget.cut(case.expected_output, _INPUT_CHARACTERS),
        budget.cut(case.criteria, _INPUT_CHARACTERS),
        budget.cut(dict(case.metadata) or None, _INPUT_CHARACTERS),
    )


def _trace(run: StoredRun, item: ItemView, budget: TextBudget) -> ItemTrace:
    details = {} if item.evidence is None else item.evidence.details
    return ItemTrace(
        read_exchanges(details, Library(run.store), budget),
        read_timeline(run, item.row.item, budget),
        budget.cut(details.get("state") or None, _INPUT_CHARACTERS),
    )
