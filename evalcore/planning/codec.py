"""Cases as lines of JSON and back: what the plan in the store is made of.

A block of cases begins with a line that holds its distinct assertions; the lines after it hold a
case each and name their assertions by index. Cases of one suite repeat their assertions, and what
is read once need not be decoded, hashed or written again for each of them. Defaults are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import orjson

from evalcore.model.assertion import Assertion
from evalcore.model.evidence import NOTHING, UNMEASURED, Evidence, Metrics
from evalcore.model.exchange import Turns
from evalcore.model.identity import CODE_CHECKS, attached_names, code_names
from evalcore.model.suite import Case

_LEFT_OUT_AS_NONE = (
    "group",
    "target",
    "threshold",
    "expected_output",
    "criteria",
    "reason_not_executable",
)
_LEFT_OUT_AS_EMPTY = ("tags", "metadata", "conversation", "targets")
_METRICS = tuple(field.name for field in fields(Metrics))
# What most cases have in their fields after the threshold.
_NOTHING_MORE = list(Case("")[Case._fields.index("threshold") + 1 :])
_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS


class CaseEncoder:
    """Encodes cases, block by block; `spool.PlanPart` gives equal cases back.

    `code_names`, `checks` and `has_workspaces` tell of the cases of all blocks.
    """

    def __init__(self) -> None:
        self.code_names: set[str] = set()
        self.checks: set[str] = set()
        self.has_workspaces = False
        self._begin_block()

    def _begin_block(self) -> None:
        self._indices: dict[int, int] = {}
        self._assertions: list[Assertion] = []
        self._workspaces: list[Mapping[str, Any]] = []
        self._workspace_indices: dict[int, int] = {}
        self._lines: list[bytes] = []

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, case: Case) -> None:
        """Add a case; raise `TypeError` for a value that JSON cannot hold."""
        # Unpacked at once: a field at a time takes three times as long.
        id_, input_, assertions, fixture, group, target, threshold, *rest = case
        indices, numbers = self._indices, []
        for assertion in assertions:
            index = indices.get(id(assertion))
            numbers.append(self._new_index(assertion) if index is None else index)
        raw: dict[str, Any] = {"id": id_, "input": input_, "assertions": numbers}
        if fixture is not None:
            raw["fixture"] = encode_evidence(fixture)
        if group is target is None and rest == _NOTHING_MORE:
            if threshold is not None:
                raw["threshold"] = threshold
        else:
            self._add_more(raw, case)
        if isinstance(input_, list | tuple):
            self.code_names.update(attached_names(input_))
        self._lines.append(orjson.dumps(raw, option=_OPTIONS))

    def _add_more(self, raw: dict[str, Any], case: Case) -> None:
        """Add the fields that most cases leave out."""
        if case.block_fixtures is not None:
            raw["given"] = encode_evidence(case.block_fixtures)
        if case.workspace is not None:
            raw["workspace"] = self._workspace_index(case.workspace)
        if case.turns is not None:
            raw["turns"] = tuple(case.turns)
        for name in _LEFT_OUT_AS_NONE:
            if (value := getattr(case, name)) is not None:
                raw[name] = value
        for name in _LEFT_OUT_AS_EMPTY:
            if value := getattr(case, name):
                raw[name] = value

    def _new_index(self, assertion: Assertion) -> int:
        """Return the index of an assertion that has none yet; the same object has the same one."""
        # `_assertions` keeps the object alive, so its id cannot be another's meanwhile.
        index = self._indices[id(assertion)] = len(self._assertions)
        self._assertions.append(assertion)
        self.checks.add(assertion.check)
        if assertion.check in CODE_CHECKS:
            self.code_names.update(code_names(assertion.params))
        return index

    def _workspace_index(self, workspace: Mapping[str, Any]) -> int:
        index = self._workspace_indices.get(id(workspace))
        if index is None:
            index = self._workspace_indices[id(workspace)] = len(self._workspaces)
            self._workspaces.append(workspace)
            self.has_workspaces = True
            self.code_names.update(code_names(workspace))
        return index

    def block(self) -> bytes:
        """Return the block of the cases since the last one, and begin another."""
        head: dict[str, Any] = {"assertions": list(map(tuple, self._assertions))}
        if self._workspaces:
            head["workspaces"] = self._workspaces
        block = b"".join((orjson.dumps(head, option=_OPTIONS), *self._lines))
        self._begin_block()
        return block


def decode_case(
    raw: dict[str, Any],
    table: Sequence[Assertion],
    workspaces: Sequence[Mapping[str, Any]],
) -> Case:
    """Return the case of a line; `table` has the assertions of its block, by index."""
    get = raw.get
    fixture, block_fixtures, workspace, turns = map(get, ("fixture", "given", "workspace", "turns"))
    # In the order of the fields, which a tuple takes in half the time of names.
    return Case._make(
        (
            raw["id"],
            raw["input"],
            tuple([table[index] for index in raw["assertions"]]),
            None if fixture is None else decode_evidence(fixture),
            get("group"),
            get("target"),
            get("threshold"),
            get("expected_output"),
            get("criteria"),
            tuple(get("tags", ())),
            get("metadata", NOTHING),
            get("reason_not_executable"),
            None if block_fixtures is None else decode_evidence(block_fixtures),
            None if workspace is None else workspaces[workspace],
            get("conversation", False),
            None if turns is None else Turns._make((*turns[:-1], tuple(turns[-1]))),
            tuple(get("targets", ())),
        ),
    )


def encode_evidence(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence as JSON values; what is empty is left out."""
    raw: dict[str, Any] = {"output": evidence.output}
    if evidence.outputs:
        raw["outputs"] = dict(evidence.outputs)
    if evidence.metrics is not UNMEASURED:
        raw["metrics"] = _encode_metrics(evidence.metrics)
    if evidence.block_metrics:
        raw["block_metrics"] = {
            block: _encode_metrics(metrics) for block, metrics in evidence.block_metrics.items()
        }
    if evidence.details:
        raw["details"] = dict(evidence.details)
    return raw


def decode_evidence(raw: Mapping[str, Any]) -> Evidence:
    """Return the evidence that `encode_evidence` wrote."""
    if len(raw) == 1:
        return Evidence(raw["output"])
    metrics = raw.get("metrics")
    return Evidence(
        output=raw["output"],
        outputs=raw.get("outputs", NOTHING),
        metrics=UNMEASURED if metrics is None else Metrics(**metrics),
        block_metrics={
            block: Metrics(**measured) for block, measured in raw.get("block_metrics", {}).items()
        }
        or NOTHING,
        details=raw.get("details", NOTHING),
    )


def _encode_metrics(metrics: Metrics) -> dict[str, Any]:
    measured = ((name, getattr(metrics, name)) for name in _METRICS)
    return {name: value for name, value in measured if value is not None}
