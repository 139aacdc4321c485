"""A case as one line of JSON and back: what the plan in the store is made of.

`decode_case(encode_case(case)) == case` for every case that a loader makes. Defaults are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from evalcore.model.assertion import Assertion
from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.suite import Case

_PLAIN = (
    "group",
    "target",
    "threshold",
    "expected_output",
    "criteria",
    "tags",
    "metadata",
    "reason_not_executable",
)
_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS


def encode_case(case: Case) -> bytes:
    """Return the case as one line (with its newline)."""
    raw: dict[str, Any] = {
        "id": case.id,
        "input": case.input,
        "assertions": [tuple(assertion) for assertion in case.assertions],
    }
    if case.fixture is not None:
        raw["fixture"] = encode_evidence(case.fixture)
    for name in _PLAIN:
        value = getattr(case, name)
        if value or (value is not None and not isinstance(value, tuple | dict)):
            raw[name] = value
    return orjson.dumps(raw, option=_OPTIONS)


def decode_case(line: bytes) -> Case:
    """Return the case that `encode_case` wrote."""
    raw = orjson.loads(line)
    fixture = raw.get("fixture")
    return Case(
        id=raw["id"],
        input=raw["input"],
        assertions=tuple([Assertion(*fields) for fields in raw["assertions"]]),
        fixture=None if fixture is None else decode_evidence(fixture),
        group=raw.get("group"),
        target=raw.get("target"),
        threshold=raw.get("threshold"),
        expected_output=raw.get("expected_output"),
        criteria=raw.get("criteria"),
        tags=tuple(raw.get("tags", ())),
        metadata=raw.get("metadata", {}),
        reason_not_executable=raw.get("reason_not_executable"),
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
        outputs=raw.get("outputs", {}),
        metrics=UNMEASURED if metrics is None else Metrics(**metrics),
        block_metrics={
            block: Metrics(**measured) for block, measured in raw.get("block_metrics", {}).items()
        },
        details=raw.get("details", {}),
    )


def _encode_metrics(metrics: Metrics) -> dict[str, Any]:
    return {name: value for name, value in asdict(metrics).items() if value is not None}
