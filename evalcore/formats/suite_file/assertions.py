"""Assertions in the words of suite files → the engine's checks (docs/reference/suites.md).

Types that are not of this format's own follow the rules of workflow files where those have them,
else those of test files. A `path` makes any of them look there instead of at the primary output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from evalcore.checks.registry import AWAITED
from evalcore.formats.assertions.grader_errors import AssertionValueError
from evalcore.formats.assertions.graders import Graders
from evalcore.formats.assertions.llm_judge import read_llm_judge
from evalcore.formats.suite_file.shapes import ASSERTION_TYPES, AssertionShape
from evalcore.formats.test_file.assertions import make_assertion
from evalcore.formats.test_file.shapes import AssertionShape as TestAssertionShape
from evalcore.formats.text.camel_case import Renames
from evalcore.formats.workflow_harness.assertions import read_assertion as read_harness_assertion
from evalcore.formats.workflow_harness.shapes import ASSERTION_TYPES as HARNESS_TYPES
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import adapter
from evalcore.mistakes.wording import describe, suggest_assertion
from evalcore.model.assertion import Assertion
from evalcore.model.evidence_path import ROOTS, PathSyntaxError, parse_path

_METRICS = {
    "metric.latency_ms.max": "latency",
    "metric.total_cost_usd.max": "cost",
    "metric.tokens.input.max": "input-tokens",
    "metric.tokens.output.max": "output-tokens",
}
_OF_TEST_FILES = (
    "token-usage",
    "llm-grader",
    "rubrics",
    "code-grader",
    "composite",
    "tool-trajectory",
    "field-accuracy",
    "execution-metrics",
)
# Types in the words of workflow files and of test files.
OTHER_TYPES = (
    *HARNESS_TYPES,
    *(name.replace("-", "_") for name in HARNESS_TYPES if "-" in name),
    *(f"not-{name}" for name in HARNESS_TYPES),
    *_OF_TEST_FILES,
    *(name.replace("-", "_") for name in _OF_TEST_FILES),
)
_COMMON_KEYS = ("min_score", "node_id")


class SuiteAssertions:
    """Reads assertions; `warnings` are about paths that can hold nothing."""

    def __init__(self, graders: Graders, renames: Renames) -> None:
        self.warnings: list[str] = []
        self._folder, self._graders = graders.folder, graders
        self._renames = renames

    def read(self, raw: object, loc: Loc, problems: Problems) -> Assertion | None:
        """Return the assertion at `loc`, or note what is wrong with it and return None."""
        if not isinstance(raw, Mapping):
            problems.add(loc, f"an assertion is a mapping with 'type', got {describe(raw)}")
            return None
        return self._read(self._renames.read(raw, _COMMON_KEYS, loc), loc, problems)

    def _read(self, raw: Mapping[str, Any], loc: Loc, problems: Problems) -> Assertion | None:
        kind = raw.get("type")
        if not isinstance(kind, str):
            wanted = f"expected text, got {describe(kind)}" if "type" in raw else "is required"
            problems.add((*loc, "type"), wanted)
            return None
        before = problems.count
        self._check_path(raw.get("path"), loc, problems)
        bare = kind.removeprefix("not-")
        dashed = bare.replace("_", "-")
        found: Assertion | None
        if bare in ASSERTION_TYPES:
            found = self._own(raw, bare, loc, problems)
        elif bare in HARNESS_TYPES or bare.startswith("custom:") or dashed in HARNESS_TYPES:
            written = kind if bare in HARNESS_TYPES else kind.replace("_", "-")
            written = kind if bare.startswith("custom:") else written
            found = self._harness(raw, written, loc, problems)
        elif kind.replace("_", "-") in _OF_TEST_FILES:
            found = _test_file(raw, self._graders, loc, problems)
        else:
            known = {*ASSERTION_TYPES, *HARNESS_TYPES, *_OF_TEST_FILES, "custom:<id>"}
            hint = suggest_assertion(kind, [*known, *(f"not-{name}" for name in known)])
            problems.add((*loc, "type"), f"unknown assertion {describe(kind)}.{hint}")
            return None
        return found if problems.count == before else None

    def _check_path(self, path: object, loc: Loc, problems: Problems) -> None:
        if not isinstance(path, str):
            return
        try:
            root = parse_path(path)[0]
        except PathSyntaxError as error:
            problems.add((*loc, "path"), str(error))
            return
        if root not in ROOTS:
            text = f"path '{path}' finds nothing: a path begins with {', '.join(ROOTS)}"
            if text not in self.warnings:
                self.warnings.append(text)

    def _own(
        self, raw: Mapping[str, Any], bare: str, loc: Loc, problems: Problems
    ) -> Assertion | None:
        """Return an assertion of a type that only suite files have."""
        try:
            checked = adapter(AssertionShape).validate_python(dict(raw))
        except ValidationError as error:
            problems.add_invalid(error, dict(raw), AssertionShape, loc)
            return None
        negate = raw["type"] != bare
        if bare == "llm_judge":
            check, params = read_llm_judge(raw, self._graders, loc, problems)
        else:
            check, params = _check_of(bare, raw, loc, problems)
        if bare.startswith("output."):
            params = {"path": checked.get("path"), **params}
            if negate:
                params["negated"] = True
        assertion = Assertion(
            type=raw["type"],
            check=check,
            name=checked.get("name") or _name(raw["type"], raw),
            params=params,
            weight=float(checked.get("weight", 1.0)),
            negate=negate,
            metric=checked.get("metric"),
        )
        if bare.startswith("output."):
            return assertion
        return _at_path(assertion, checked.get("path"))

    def _harness(
        self, raw: Mapping[str, Any], kind: str, loc: Loc, problems: Problems
    ) -> Assertion | None:
        """Return an assertion by the rules of workflow files."""
        rest = {key: value for key, value in raw.items() if key not in {"path", "name"}}
        found = read_harness_assertion(
            {**rest, "type": kind},
            loc,
            problems,
            block=None,
            folder=self._folder,
            graders=self._graders,
        )
        name, path = raw.get("name"), raw.get("path")
        for key, value in (("name", name), ("path", path)):
            if key in raw and (not isinstance(value, str) or not value):
                problems.add((*loc, key), f"expected text, got {describe(value)}")
                return None
        if found is None:
            return None
        if name:
            found = found._replace(name=name)
        return _at_path(found, path)


def _check_of(
    kind: str, raw: Mapping[str, Any], loc: Loc, problems: Problems
) -> tuple[str, dict[str, Any]]:
    value = raw.get("value")
    if kind == "output.matches":
        pattern = raw.get("pattern", value)
        if pattern is None or ("pattern" in raw and "value" in raw):
            problems.add((*loc, "value"), "is required: the regular expression, here or 'pattern'")
        flags = raw.get("flags", "")
        return "output-matches", {"pattern": pattern, "flags": flags, "dialect": "python"}
    if kind.startswith("output."):
        return kind.replace(".", "-"), {"value": value}
    if kind in _METRICS:
        return _METRICS[kind], {"threshold": value}
    if kind == "behavior.no_errors":
        return "no-errors", {}
    if kind == "behavior.node_executed":
        return "node-executed", {"node_id": raw["node_id"]}
    if kind == "behavior.node_invocations.max":
        return "node-invocations", {"node_id": raw["node_id"], "max": value}
    names = ("callable", "config", "threshold", "behaviour")
    return "python", {name: raw[name] for name in names if name in raw}


def _test_file(
    raw: Mapping[str, Any], graders: Graders, loc: Loc, problems: Problems
) -> Assertion | None:
    """Return an assertion by the rules of test files."""
    rest = {key: value for key, value in raw.items() if key != "path"}
    try:
        checked = adapter(TestAssertionShape).validate_python(rest)
        return _at_path(make_assertion(checked, graders, loc, problems), raw.get("path"))
    except ValidationError as error:
        problems.add_invalid(error, rest, TestAssertionShape, loc)
    except AssertionValueError as error:
        problems.add(loc, str(error))
    return None


def _at_path(assertion: Assertion, path: str | None) -> Assertion:
    """Return the assertion made on what stands at the path."""
    if path is None:
        return assertion
    params: dict[str, Any] = {
        "path": path,
        "check": assertion.check,
        "params": assertion.params,
        "transform": assertion.transform,
    }
    for shown in ("value", "values", "pattern", "threshold"):
        if shown in assertion.params:
            params[shown] = assertion.params[shown]
    if assertion.negate:
        params["negated"] = True
    check = "at-path-later" if assertion.check in AWAITED else "at-path"
    return assertion._replace(check=check, params=params, transform=None)


def _name(kind: str, raw: Mapping[str, Any]) -> str:
    shown = raw.get("node_id") or raw.get("callable") or raw.get("pattern") or raw.get("value")
    if isinstance(shown, str | int | float) and not isinstance(shown, bool):
        return f"{kind}-{str(shown)[:30]}"
    return kind
