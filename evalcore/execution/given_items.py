"""Items whose output is given and whose checks only look at it, in half the time of `ItemRunner`.

Such an item is graded as the plan has it, without making a case, assertions and results of it. Only
one that passes all of its checks ends here; any other takes the whole way, which says what is wrong
with it. The rows are those of the whole way (docs/decisions/0123-given-outputs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import orjson

from evalcore.checks.grading import plain_pass
from evalcore.checks.registry import find_check
from evalcore.checks.subject import CheckContext, Subject
from evalcore.execution.row import encode_row, result_fields, wall_clock_us
from evalcore.model.assertion import PASSED, Assertion, Outcome
from evalcore.model.evidence import UNMEASURED, Evidence
from evalcore.model.identity import (
    METADATA_APART_SINCE,
    exec_key,
    given_identity,
    grade_key,
    grading_of,
    metadata_identity,
    stored_assertions_identity,
)
from evalcore.model.run import Plan, State
from evalcore.model.suite import Case, EvidencePolicy, ScoreRule, SuiteDefinition
from evalcore.planning.expand import Expander, WorkItem
from evalcore.targets.reasoning import may_strip_reasoning

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
# As rows have it: an enumeration is written in three times the time of its text.
_PASSED_TEXT: Final = _PASSED.value
# The fields of most assertions after their parameters: the output, of weight 1, and no rule more.
_NOTHING_MORE: Final = list(Assertion("", "", "", {})[4:])


class GivenPart(Protocol):
    """A part of a plan that given items come from."""

    @property
    def stored_assertions(self) -> Sequence[Sequence[Any]]:
        """The fields of the assertions; cases name them by their index."""

    def expand(self, number: int, line: bytes) -> WorkItem:
        """Return the case of a line of the part as a work item; raise `DamagedRunError`."""


class GivenItem(NamedTuple):
    """A work item whose case is a line of its part of the plan, not decoded yet.

    Decoded when its turn comes, it is graded from the processor's cache.
    """

    number: int
    line: bytes
    part: GivenPart

    def expanded(self) -> WorkItem:
        """Return the work item; raise `DamagedRunError`."""
        return self.part.expand(self.number, self.line)


class GivenEnd(NamedTuple):
    """How an item ended that passed here, and its row, a line of JSON."""

    number: int
    status: State
    outcome: Outcome
    started_us: int
    ended_us: int
    row: bytes


_new_end: Final = GivenEnd._make


# What many cases share comes up early. What is of one case alone is soon out of the processor's
# cache, and would fill any of ours.
_MOST_SHARED: Final = 256


class _Entry(NamedTuple):
    """An assertion of a part: its fields, its check, the fields of its pass."""

    fields: Sequence[Any]
    check: Check
    passes: Mapping[str, Any]


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
        and not may_strip_reasoning(suite)
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

    `begin` returns the items of a shard in order.
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
        self._keeps_apart = suite.file_rules >= METADATA_APART_SINCE
        (variant,) = suite.variants
        target, self._target_digest = expander.target_of(None, variant)
        self._fields: dict[str, Any] = {
            "variant": variant.id,
            "iteration": 0,
            "status": State.COMPLETED.value,
            "attempts": 1,
            "outcome": _PASSED_TEXT,
            "score": 1.0,
        }
        if target is not None:
            self._fields["target"] = target.name
        self._part: GivenPart | None = None
        self._stored: Sequence[Sequence[Any]] = ()
        self._entries: dict[int, _Entry | None] = {}
        self._lists: dict[tuple[int, ...], _CheckList | None] = {}

    def end(self, item: GivenItem) -> GivenEnd | None:
        """Return the end of an item that passes all of its checks; None for any other."""
        if item.part is not self._part:
            self._part, self._stored = item.part, item.part.stored_assertions
            self._entries, self._lists = {}, {}
        started_us = wall_clock_us()
        try:
            case = orjson.loads(item.line)
            if not is_given(case):
                return None
            checked = self._checked(tuple(case["assertions"]))
            if checked is None:
                return None
            output = case["fixture"]["output"]
            subject = Subject(output, UNMEASURED, _NO_EVIDENCE, _NO_CASE, self._context)
            for check in checked.checks:
                if check.check(subject) is not PASSED:
                    return None
            ended_us = wall_clock_us()
            row = self._row(item.number, case, checked, started_us, ended_us)
        except Exception:  # noqa: BLE001 - the whole way tells what is wrong with it
            return None
        return _new_end((item.number, _COMPLETED, _PASSED, started_us, ended_us, row))

    def _checked(self, indices: tuple[int, ...]) -> _CheckList | None:
        """Return the checks of a case; None if one of them needs more than the text."""
        try:
            return self._lists[indices]
        except KeyError:
            checked = self._read(indices)
            if len(self._lists) < _MOST_SHARED:
                self._lists[indices] = checked
            return checked

    def _read(self, indices: tuple[int, ...]) -> _CheckList | None:
        if not indices:
            return None
        stored, checks, passes = [], [], []
        for index in indices:
            entry = self._entry(index)
            if entry is None:
                return None
            fields, check, passed = entry
            stored.append(fields)
            checks.append(check)
            passes.append(passed)
        return _CheckList(checks, passes, stored_assertions_identity(stored))

    def _entry(self, index: int) -> _Entry | None:
        """Return an assertion of the part; None if its check needs more than the text."""
        try:
            return self._entries[index]
        except KeyError:
            entry = _read_entry(self._stored[index])
            if len(self._entries) < _MOST_SHARED:
                self._entries[index] = entry
            return entry

    def _row(
        self,
        number: int,
        case: Mapping[str, Any],
        checked: _CheckList,
        started_us: int,
        ended_us: int,
    ) -> bytes:
        get = case.get
        output, metadata, least = case["fixture"]["output"], get("metadata"), get("threshold")
        apart = metadata if self._keeps_apart else None
        executed_metadata = None if self._keeps_apart else metadata
        executed = given_identity(case["input"], output, executed_metadata, get("expected_output"))
        key = exec_key(executed, self._target_digest, 0)
        grading = grading_of(checked.digest, least, get("criteria")) + metadata_identity(apart)
        row = {
            **self._fields,
            "item": number,
            "case_id": case["id"],
            "exec_key": key,
            "grade_key": grade_key(key, grading),
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


def _read_entry(fields: Sequence[Any]) -> _Entry | None:
    type_, name, label, params, *more = fields
    kind = find_check(name)
    if not kind.of_text:
        return None
    if more == _NOTHING_MORE:
        check = kind.from_stored(params)
        passes = {
            "name": label,
            "type": type_,
            "outcome": _PASSED_TEXT,
            "score": 1.0,
            "weight": 1.0,
        }
        if (expected := check.expected_text()) is not None:
            passes["expected"] = expected
        return _Entry(fields, check, passes)
    block, weight, _, negate, transform, metric = more
    if block is None and weight > 0 and not negate and transform is metric is None:
        check = kind.from_stored(params)
        return _Entry(fields, check, result_fields(plain_pass(fields, check)))
    return None
