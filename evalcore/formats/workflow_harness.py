"""Load workflow files with an `eval:` section (spec/workflow-harness.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalcore.formats.options import (
    LoadOptions,
    limits_of,
    policy_of,
    refuse_both,
    selected,
    suite_name,
    variants_of,
)
from evalcore.formats.problems import Problems, suggest
from evalcore.formats.shapes import EvalcoreSection, adapter
from evalcore.formats.source import Document, Loc
from evalcore.formats.workflow_harness_assertions import read_assertion
from evalcore.formats.workflow_harness_shapes import BlockShape, EvalSection, Soul, Workflow
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.gate import GateSpec
from evalcore.model.suite import Case, Format, ScoreRule, Source, Suite, SuiteDefinition
from evalcore.model.target import Target
from evalcore.planning.spool import spool_cases

NO_EXECUTOR = (
    "Case '{id}' requires an executor (no fixtures for all expected blocks) "
    "but no executor was provided."
)
_MEASURE_NAMES = ("latency_ms", "ttft_ms", "cost_usd", "input_tokens", "output_tokens")


def load_workflow_file(document: Document, path: Path, options: LoadOptions) -> Suite:
    """Return the suite of a workflow file; raise `LoadError` with every mistake in it."""
    problems = Problems(document.file, document.locate)
    raw = document.value
    if not isinstance(raw, dict):
        problems.add((), "a workflow file is a mapping with 'eval:'")
        problems.raise_if_any()
    if "eval" not in raw:
        problems.add((), "Workflow YAML has no eval section")
    _check_shapes(raw, problems)
    section = raw.get("evalcore") if isinstance(raw.get("evalcore"), dict) else {}
    problems.raise_if_any()
    evals = raw["eval"]
    refuse_both(section, {"threshold": "eval.threshold"}, evals, problems)
    warnings: list[str] = []
    cases = list(_read_cases(raw, path.parent, problems, warnings))
    if options.strict:
        for warning in warnings:
            problems.add((), warning)
    threshold = _threshold(evals, section, options)
    policy = policy_of(
        section,
        options,
        score_rule=ScoreRule.BLOCKS,
        default_gates=(GateSpec("threshold", {"threshold": threshold}),),
        threshold=threshold,
        problems=problems,
    )
    variants = variants_of(section, problems)
    problems.raise_if_any()
    workflow = raw.get("workflow") or {}
    return Suite(
        definition=SuiteDefinition(
            name=suite_name(path, section.get("name"), workflow.get("name")),
            format=Format.WORKFLOW_HARNESS,
            source=Source(document.file, str(path.resolve().parent), document.sha256),
            policy=policy,
            targets={"workflow": Target("workflow", "workflow", _definition(raw))},
            default_target="workflow",
            variants=variants,
            baseline=section.get("baseline"),
            limits=limits_of(section, options),
            tags=tuple(section.get("tags", ())),
        ),
        cases=spool_cases(case for case in cases if selected(case.id, case.tags, options)),
        warnings=tuple(warnings),
    )


def _threshold(evals: Mapping[str, Any], section: Mapping[str, Any], options: LoadOptions) -> float:
    for given in (options.threshold, evals.get("threshold"), section.get("threshold")):
        if given is not None:
            return float(given)
    return 1.0


def _definition(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the workflow does, without its evals."""
    return {key: value for key, value in raw.items() if key not in {"eval", "evalcore"}}


def _check_shapes(raw: Mapping[str, Any], problems: Problems) -> None:
    """Check every section's shape; block by block, so that only the shapes in use are built."""
    shapes: list[tuple[tuple[str | int, ...], Any]] = []
    if "eval" in raw:
        shapes.append((("eval",), EvalSection))
    if "evalcore" in raw:
        shapes.append((("evalcore",), EvalcoreSection))
    if "workflow" in raw:
        shapes.append((("workflow",), Workflow))
    for key, shape in (("blocks", BlockShape), ("souls", Soul)):
        members = raw.get(key)
        if isinstance(members, dict):
            shapes.extend(((key, name), shape) for name in members)
        elif members is not None:
            problems.add((key,), "expected a mapping of ids")
    for loc, shape in shapes:
        value: Any = raw
        for part in loc:
            value = value[part]
        try:
            adapter(shape).validate_python(value)
        except ValidationError as error:
            problems.add_invalid(error, value, shape, loc)


def _read_cases(
    raw: Mapping[str, Any], folder: Path, problems: Problems, warnings: list[str]
) -> Iterator[Case]:
    """Yield the cases; note duplicate ids, unknown blocks and wrong assertions."""
    seen: set[str] = set()
    known = _block_ids(raw)
    for index, case in enumerate(raw["eval"]["cases"]):
        loc = ("eval", "cases", index)
        if case["id"] in seen:
            problems.add((*loc, "id"), f"duplicate eval case id: {case['id']}")
        seen.add(case["id"])
        fixtures, expected = case.get("fixtures") or {}, case.get("expected") or {}
        for key, blocks in (("fixtures", fixtures), ("expected", expected)):
            for block in blocks:
                if known is not None and block not in known:
                    hint = suggest(block, known)
                    problems.add((*loc, key, block), f"unknown block '{block}'.{hint}")
        if not expected:
            warnings.append(f"Case '{case['id']}' has no 'expected': it asserts nothing")
        yield _case(case, fixtures, expected, _assertions(expected, loc, folder, problems))


def _assertions(
    expected: Mapping[str, Any], loc: Loc, folder: Path, problems: Problems
) -> tuple[Assertion, ...]:
    """Return the assertions of a case, block by block; note wrong ones and blocks without any."""
    assertions = []
    for block, entries in expected.items():
        if not entries:
            message = "asserts nothing; add an assertion or remove the block"
            problems.add((*loc, "expected", block), message)
        for number, entry in enumerate(entries):
            place = (*loc, "expected", block, number)
            found = read_assertion(entry, place, problems, block=block, folder=folder)
            if found is not None:
                assertions.append(found)
    return tuple(assertions)


def _case(
    raw: Mapping[str, Any],
    fixtures: Mapping[str, Any],
    expected: Mapping[str, Any],
    assertions: tuple[Assertion, ...],
) -> Case:
    given = all(block in fixtures for block in expected)
    return Case(
        id=raw["id"],
        input=raw.get("inputs"),
        assertions=assertions,
        fixture=_evidence(fixtures, expected) if given else None,
        reason_not_executable=None if given else NO_EXECUTOR.format(id=raw["id"]),
    )


def _evidence(fixtures: Mapping[str, Any], expected: Mapping[str, Any]) -> Evidence:
    """Return the evidence that fixtures give; the primary output is the last expected block's."""
    outputs: dict[str, str] = {}
    measured: dict[str, Metrics] = {}
    for block, given in fixtures.items():
        if isinstance(given, str):
            outputs[block] = given
        else:
            outputs[block] = given["output"]
            if given.get("metrics"):
                measured[block] = Metrics(**given["metrics"])
    last = next(reversed(list(expected or fixtures)), None)
    return Evidence(
        output=outputs.get(last, "") if last is not None else "",
        outputs=outputs,
        metrics=_sum_metrics(measured),
        block_metrics=measured,
    )


def _sum_metrics(measured: Mapping[str, Metrics]) -> Metrics:
    """Return the measures of a whole execution: sums over its blocks, None where nothing was."""
    if not measured:
        return UNMEASURED
    sums: dict[str, Any] = {}
    for name in _MEASURE_NAMES:
        values = [getattr(m, name) for m in measured.values() if getattr(m, name) is not None]
        sums[name] = sum(values) if values else None
    return Metrics(**{**sums, "ttft_ms": None})


def _block_ids(raw: Mapping[str, Any]) -> set[str] | None:
    """Return the ids that fixtures and expectations may name; None if the file has no blocks."""
    blocks = raw.get("blocks")
    if not isinstance(blocks, dict):
        return None
    ids = set(blocks)
    for name, block in blocks.items():
        exits = block.get("exits") if isinstance(block, dict) else None
        ids.update(f"{name}.{exit_['id']}" for exit_ in exits or () if "id" in exit_)
    return ids
