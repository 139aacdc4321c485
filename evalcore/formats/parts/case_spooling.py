"""From raw tests to a spool of the valid, selected cases, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from evalcore.errors import LoadError, Problem
from evalcore.formats.parts.data_row_rules import NOTHING_DECLARED, RowRules, forbidden_parts
from evalcore.formats.parts.raw_test import NO_TEST, RawTest
from evalcore.formats.parts.reference_fields import ReferenceFields
from evalcore.formats.parts.selection import Selection
from evalcore.formats.parts.unjudged_cases import UnjudgedCases
from evalcore.formats.text.documents import collector_paused
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.model.suite import Case
from evalcore.planning.spool import CaseSpool


class ItemReader(Protocol):
    """What turns raw tests into cases."""

    def read(self, value: Any, loc: Loc, problems: Problems, *, marked: bool = True) -> Case | None:
        """Return the case at `loc`, or note every mistake in it and return None."""


class DataRows(NamedTuple):
    """How rows of data are read: by which rules, and what is tried first.

    `read_plain` returns the case of a row that needs no other look; None, with nothing noted, for
    any other.
    """

    rules: RowRules = NOTHING_DECLARED
    read_plain: Callable[[Any, Problems], Case | None] | None = None


NO_DATA_ROWS: Final = DataRows()


class Spooled(NamedTuple):
    """The cases, and every collector of mistakes: the suite's first, then those of its files.

    `absent_fields` are the fields to be compared that no expected output has; `unjudged` has the
    cases that ask the default judge.
    """

    cases: CaseSpool
    collectors: tuple[Problems, ...]
    absent_fields: tuple[str, ...]
    unjudged: UnjudgedCases


def spool_rows(
    rows: Iterable[RawTest],
    reader: ItemReader,
    selection: Selection,
    collectors: Sequence[Problems],
    *,
    noun: str,
    references: ReferenceFields,
    data: DataRows = NO_DATA_ROWS,
) -> Spooled:
    """Return the valid, selected cases; the caller raises what the collectors hold.

    The first collector is the suite's own. `data` says how rows of data are read.
    `noun` is what a case is called in the suite's format.
    """
    spool, unjudged = CaseSpool(), UnjudgedCases()
    every = {id(collector): collector for collector in collectors}
    last = collectors[0]
    read = 0
    try:
        with collector_paused():
            for row in rows:
                value, loc, problems, _, _ = row
                if problems is not last:
                    every[id(problems)] = last = problems
                if value is NO_TEST:
                    continue
                read += 1
                case = _case_of(row, reader, data)
                if case is not None:
                    references.note(case)
                if case is None or not selection.keeps(case.id, case.tags):
                    continue
                append_case(spool, case, loc, problems, noun=noun)
                unjudged.note(case)
    except LoadError as error:
        last.include(error.problems)
    if not read and not any(collector.count for collector in every.values()):
        last.include([Problem(last.file, None, "", f"holds no {noun}")])
    return Spooled(spool, tuple(every.values()), references.absent(spool), unjudged)


def _case_of(row: RawTest, reader: ItemReader, data: DataRows) -> Case | None:
    """Return the case of a row; None, and every mistake noted, if it is wrong."""
    value, loc, problems, marked, is_data = row
    if is_data:
        if data.read_plain is not None and not problems.replaced:
            case = data.read_plain(value, problems)
            if case is not None:
                return case
        if _is_refused(value, loc, problems, data.rules):
            return None
    return reader.read(value, loc, problems, marked=marked)


def append_case(spool: CaseSpool, case: Case, loc: Loc, problems: Problems, *, noun: str) -> None:
    """Append the case; note one that cannot be stored as JSON."""
    try:
        spool.append(case)
    except (TypeError, RecursionError) as error:
        problems.add(loc, f"{noun} '{case.id}' holds a value that JSON cannot: {error}")


def _is_refused(value: Any, loc: Loc, problems: Problems, rules: RowRules) -> bool:
    """Note what a row of data may not hold; return whether there is anything."""
    refused = False
    for inner, message in forbidden_parts(value, rules):
        case_id = value.get("id")
        label = f"'{case_id}'" if isinstance(case_id, str) else ""
        problems.add((*loc, *inner), message, label=label)
        refused = True
    return refused
