"""What did not pass, on a terminal: equal failures of several items once, with their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from evalcore.model.failure import FailedAssertion, Failure, cut_mark
from evalcore.model.quarantine import Quarantine
from evalcore.report.quarantine import quarantine_mark
from evalcore.report.terminal_style import Line, Style

EQUAL_FAILURES: Final = 20
"""How many failures are read for each group that is shown."""
_NAMED: Final = 5


class EqualFailures(NamedTuple):
    """Items that did not pass for the same reason, in the order of the plan; `mark` is for all."""

    failures: Sequence[Failure]
    mark: str


def equal_failures(failures: Sequence[Failure], quarantine: Quarantine) -> list[EqualFailures]:
    """Return failures in groups of equal ones, by their first; skipped items are left out."""
    groups: dict[tuple[Failure, str], list[Failure]] = {}
    for failure in failures:
        if failure.status == "skipped":
            continue
        mark = quarantine_mark(quarantine, failure.case)
        printed = tuple(map(_as_shown, failure.assertions))
        reason = failure._replace(case="", variant="", iteration=0, output=None, assertions=printed)
        groups.setdefault((reason, mark), []).append(failure)
    return [EqualFailures(equal, mark) for (_, mark), equal in groups.items()]


def _as_shown(assertion: FailedAssertion) -> FailedAssertion:
    """Return an assertion without the texts that are shown of failed ones only."""
    if assertion.outcome == "failed":
        return assertion
    return assertion._replace(expected=None, actual=None)


def render_failures(group: EqualFailures, style: Style) -> Iterator[Line]:
    """Yield a group: which items, then their reason once."""
    failure = group.failures[0]
    ended = failure.status == "completed"
    outcome = str(failure.outcome) if ended else failure.status
    score = f", score {failure.score:.4f}" if ended and failure.score is not None else ""
    colour, sign = ("red", "✗") if ended else ("magenta", "!")
    mark = f"{cut_mark(failure.finish_reason)}{group.mark}"
    heading = f"{sign} {_items(group.failures)}: {outcome}{score}{mark}"
    yield from style.lines(heading, colour, hanging=2)
    if not ended:
        yield from style.lines(failure.error_message or failure.reason or "", indent=4)
        return
    if failure.reason and not failure.assertions:
        yield from style.lines(failure.reason, indent=4)
    for assertion in failure.assertions:
        yield from _assertion(assertion, style)


def _items(failures: Sequence[Failure]) -> str:
    """Return what items are called: of one its case, variant and iteration, else their number."""
    names: dict[str, int] = {}
    for failure in failures:
        name = f"{failure.case} [{failure.variant}]"
        names[name] = names.get(name, 0) + 1
    first = failures[0]
    if len(failures) == 1:
        iteration = f" iteration {first.iteration}" if first.iteration else ""
        return f"{first.case} [{first.variant}]{iteration}"
    listed = [f"{name} × {n}" if n > 1 else name for name, n in names.items()]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"{len(failures)} items ({', '.join(listed[:_NAMED])}{more})"


def _assertion(assertion: FailedAssertion, style: Style) -> Iterator[Line]:
    block = f"{assertion.block}: " if assertion.block else ""
    sign = {"error": "!", "blocked": "–"}.get(assertion.outcome, "✗")
    message = f": {assertion.message}" if assertion.message else ""
    text = f"{sign} {block}{assertion.name}{message}"
    if assertion.outcome != "failed":
        yield from style.lines(text, indent=4)
        return
    yield style.line(f"    {text}")
    if assertion.expected is not None:
        yield style.line(f"        expected  {assertion.expected}")
    if assertion.actual is not None:
        yield style.line(f"        actual    {assertion.actual}")
