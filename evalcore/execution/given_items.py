"""Items whose output is given and whose checks only look at it, in half the time of `ItemRunner`.

Such an item is graded as the plan has it, without making a case, assertions and results of it. Only
one that passes all of its checks ends here; any other takes the whole way, which says what is wrong
with it. The rows are those of the whole way (docs/decisions/0123-given-outputs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from evalcore.checks.grading import plain_pass
from evalcore.checks.registry import find_check
from evalcore.checks.subject import CheckContext, Subject
from evalcore.execution.row import encode_row, result_fields
from evalcore.execution.running_item import wall_clock_us
from evalcore.model.assertion import PASSED, Outcome
from evalcore.model.evidence import UNMEASURED, Evidence
from evalcore.model.identity import (
    exec_key,
    given_identity,
    grade_key,
    grading_of,
    stored_assertions_identity,
)
from evalcore.model.run import Plan, State
from evalcore.model.suite import Case, EvidencePolicy, ScoreRule, SuiteDefinition
from evalcore.planning.expand import Expander, WorkItem

if TYPE_CHECKING:
    from evalcore.checks.base import Check

# A row keeps such a text whole, whichever characters it has.
MOST_CHARACTERS: Final = 4_096
_KEYS: Final = frozenset(
    {
        "assertions",
        "criteria",
        "expected_output",
        "fixture",
        "group",
        "id",
        "input",
        "metadata",
        "tags",
        "threshold",
    }
)
_OUTPUT_ALONE: Final = {"output"}
_NO_TAGS: Final = ()
# What the checks that are run here do not look at.
_NO_EVIDENCE: Final = Evidence(None)
_NO_CASE: Final = Case("")
_COMPLETED: Final = State.COMPLETED
_PASSED: Final = Outcome.PASSED


class GivenPart(Protocol):
    """A part of a plan that given items come from."""

    def stored_assertion(self, index: int) -> Sequence[Any]:
        """Return the fields of an assertion, as cases name it; raise `IndexError`."""

    def expand(self, number: int, case: dict[str, Any]) -> WorkItem:
        """Return a case of the part as a work item; raise `DamagedRunError`."""


class GivenItem(NamedTuple):
    """A work item whose case is as its part of the plan has it."""

    number: int
    case: dict[str, Any]
    part: GivenPart

    def expanded(self) -> WorkItem:
        """Return the work item; raise `DamagedRunError`."""
        return self.part.expand(self.number, self.case)


class GivenEnd(NamedTuple):
    """How an item ended that passed here, and its row, a line of JSON."""

    number: int
    status: State
    outcome: Outcome
    started_us: int
    ended_us: int
    row: bytes


_new_end: Final = GivenEnd._make


class _CheckList(NamedTuple):
    """The checks of a case in their order, the fields of their passes, the assertions' digest."""

    checks: Sequence[Check]
    passes: Sequence[Mapping[str, Any]]
    digest: bytes


def holds_given_items(suite: SuiteDefinition, plan: Plan) -> bool:
    """Whether items of the suite may end here: each case is one item, nothing but checks grades it.

    The caller knows that no earlier run, limit or rule decides whether an item is executed.
    """
    return (
        plan.items_per_case == 1
        and suite.policy.score_rule is ScoreRule.WEIGHTED
        and not suite.policy.stop_on_error
        and suite.evidence is not EvidencePolicy.NONE
        and not (suite.scorers or suite.code or suite.executed_code)
    )


def is_given(case: Mapping[str, Any]) -> bool:
    """Whether a case, as a plan has it, may end here: a given text and nothing else to execute."""
    if not case.keys() <= _KEYS or "fixture" not in case:
        return False
    fixture = case["fixture"]
    if not isinstance(fixture, dict) or fixture.keys() != _OUTPUT_ALONE:
        return False
    output, least = fixture["output"], case.get("threshold")
    return (
        type(output) is str
        and len(output) <= MOST_CHARACTERS
        and (least is None or (type(least) is float and least <= 1.0))
    )


class GivenItems:
    """Grades the given items of a suite that `holds_given_items`; to be used by one thread.

    `begin` returns the items of a shard in order, those with a given output not expanded.
    """

    def __init__(
        self,
        suite: SuiteDefinition,
        expander: Expander,
        context: CheckContext,
        begin: Callable[[int], Sequence[WorkItem | GivenItem]],
    ) -> None:
        self.begin = begin
        self._context = context
        (variant,) = suite.variants
        target, self._target_digest = expander.target_of(None, variant)
        self._fields: dict[str, Any] = {
            "variant": variant.id,
            "iteration": 0,
            "status": State.COMPLETED,
            "attempts": 1,
            "outcome": Outcome.PASSED,
            "score": 1.0,
        }
        if target is not None:
            self._fields["target"] = target.name
        self._part: GivenPart | None = None
        self._checks: dict[int, tuple[Check, Mapping[str, Any]] | None] = {}
        self._lists: dict[tuple[int, ...], _CheckList | None] = {}

    def end(self, item: GivenItem) -> GivenEnd | None:
        """Return the end of an item that passes all of its checks; None for any other."""
        if item.part is not self._part:
            self._part, self._checks, self._lists = item.part, {}, {}
        started_us = wall_clock_us()
        case = item.case
        try:
            checked = self._checked(tuple(case["assertions"]))
            if checked is None:
                return None
            output = case["fixture"]["output"]
            subject = Subject(output, UNMEASURED, _NO_EVIDENCE, _NO_CASE, self._context)
            for check in checked.checks:
                if check.check(subject) is not PASSED:
                    return None
            ended_us = wall_clock_us()
            row = self._row(item, checked, started_us, ended_us)
        except Exception:  # noqa: BLE001 - the whole way tells what is wrong with it
            return None
        return _new_end((item.number, _COMPLETED, _PASSED, started_us, ended_us, row))

    def _checked(self, indices: tuple[int, ...]) -> _CheckList | None:
        """Return the checks of a case; None if one of them needs more than the text."""
        try:
            return self._lists[indices]
        except KeyError:
            self._lists[indices] = checked = self._read(indices)
            return checked

    def _read(self, indices: tuple[int, ...]) -> _CheckList | None:
        part = self._part
        if part is None or not indices:
            return None
        checks, passes = [], []
        stored = [part.stored_assertion(index) for index in indices]
        for index, fields in zip(indices, stored, strict=True):
            entry = self._entry(index, fields)
            if entry is None:
                return None
            checks.append(entry[0])
            passes.append(entry[1])
        return _CheckList(checks, passes, stored_assertions_identity(stored))

    def _entry(self, index: int, fields: Sequence[Any]) -> tuple[Check, Mapping[str, Any]] | None:
        """Return the check of an assertion and the fields of its pass; None if it needs more."""
        if index in self._checks:
            return self._checks[index]
        _, name, _, params, block, weight, _, negate, transform, metric = fields
        entry = None
        is_plain = block is None and weight > 0 and not negate and transform is None
        if is_plain and metric is None and (kind := find_check(name)).of_text:
            check = kind.from_stored(params)
            entry = (check, result_fields(plain_pass(fields, check)))
        self._checks[index] = entry
        return entry

    def _row(self, item: GivenItem, checked: _CheckList, started_us: int, ended_us: int) -> bytes:
        case = item.case
        get = case.get
        output, metadata, least = case["fixture"]["output"], get("metadata"), get("threshold")
        executed = given_identity(case["input"], output, metadata, get("expected_output"))
        key = exec_key(executed, self._target_digest, 0)
        row = {
            **self._fields,
            "item": item.number,
            "case_id": case["id"],
            "exec_key": key,
            "grade_key": grade_key(key, grading_of(checked.digest, least, get("criteria"))),
            "started_at": started_us,
            "ended_at": ended_us,
            "tags": tuple(get("tags", _NO_TAGS)),
            "assertions": checked.passes,
            "output": output,
        }
        if least is not None:
            row["threshold"] = least
        if metadata:
            row["metadata"] = metadata
        if (group := get("group")) is not None:
            row["case_group"] = group
        return encode_row(row)
