"""Assertions in the words of suite files → the engine's checks (docs/reference/suites.md).

Types that are not of this format's own follow the rules of workflow files where those have them,
else those of test files. A `path` makes any of them look there instead of at the primary output.
Members of a composite follow the rules of test files where those have the type and no `path` is
written, else those of suites.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from evalcore.checks.base import AssertionValueError
from evalcore.checks.dialects import assertion_types
from evalcore.checks.registry import AWAITED, Dialect
from evalcore.formats.documents import Renames
from evalcore.formats.graders import Graders
from evalcore.formats.test_file.assertions import AssertionReader
from evalcore.formats.warnings import CaseWarnings, examine_assertion, note_empty
from evalcore.formats.workflow_harness.assertions import read_assertion as read_workflow_assertion
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import PRIMARY_PATH, ROOTS, PathSyntaxError, parse_path
from evalcore.problems import Problems
from evalcore.wording import Loc, describe, suggest_assertion

_OF_TEST_FILES: Final = (
    "token-usage",
    "llm-grader",
    "rubrics",
    "code-grader",
    "composite",
    "tool-trajectory",
    "field-accuracy",
    "execution-metrics",
)
_OWN: Final = assertion_types(Dialect.SUITE)
_OF_WORKFLOW_FILES: Final = tuple(
    name for name in assertion_types(Dialect.WORKFLOW) if name not in _OWN
)
# Types in the words of workflow files and of test files.
OTHER_TYPES: Final = (
    *_OF_WORKFLOW_FILES,
    *(name.replace("-", "_") for name in _OF_WORKFLOW_FILES if "-" in name),
    *(f"not-{name}" for name in _OF_WORKFLOW_FILES),
    *_OF_TEST_FILES,
    *(name.replace("-", "_") for name in _OF_TEST_FILES),
)
_COMMON_KEYS: Final = ("min_score", "node_id")


class SuiteAssertions:
    """Reads assertions; `warnings` are about paths that can hold nothing.

    `notes` collects assertions that decide nothing.
    """

    def __init__(
        self, graders: Graders, renames: Renames, notes: CaseWarnings | None = None
    ) -> None:
        self.warnings: list[str] = []
        self._notes = notes
        self._folder, self._graders = graders.folder, graders
        self._test_files = AssertionReader(graders, notes=notes, read_other=self._read_member)
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
            mistake = f"expected text, got {describe(kind)}" if "type" in raw else "is required"
            problems.add((*loc, "type"), mistake)
            return None
        before = problems.count
        self._check_path(raw.get("path"), loc, problems)
        bare = kind.removeprefix("not-")
        dashed = bare.replace("_", "-")
        assertion: Assertion | None
        if bare in _OWN:
            assertion = self._own(raw, bare, loc, problems)
        elif bare.startswith("custom:"):
            assertion = self._of_workflow_files(raw, kind, loc, problems)
        elif dashed in _OF_WORKFLOW_FILES:
            assertion = self._of_workflow_files(raw, kind.replace("_", "-"), loc, problems)
        elif kind.replace("_", "-") in _OF_TEST_FILES:
            rest = {key: value for key, value in raw.items() if key != "path"}
            assertion = self._test_files.read(rest, loc, problems)
            assertion = assertion and _at_path(assertion, raw.get("path"))
        else:
            names = {*_OWN, *_OF_WORKFLOW_FILES, *_OF_TEST_FILES, "custom:<id>"}
            hint = suggest_assertion(kind, names)
            problems.add((*loc, "type"), f"unknown assertion {describe(kind)}.{hint}")
            return None
        return assertion if problems.count == before else None

    def _read_member(self, raw: object, loc: Loc, problems: Problems) -> Assertion | None:
        """Return a member of a composite; a composite applies no transform of its members."""
        assertion = self.read(raw, loc, problems)
        if assertion is None or assertion.transform is None:
            return assertion
        return _at_path(assertion, PRIMARY_PATH)

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
        kind = _OWN[bare]
        try:
            written = kind.validate(dict(raw))
        except ValidationError as error:
            problems.add_invalid(error, dict(raw), kind.shape, loc)
            return None
        try:
            reader = self._graders.at(loc, problems, self._test_files.read_members)
            # As it is written: `5` is stored as `5`, which identities tell from `5.0`.
            check, params = kind.read(raw, reader)
        except AssertionValueError as error:
            problems.add((*loc, *error.loc), str(error))
            return None
        negate, is_of_path = raw["type"] != bare, bare.startswith("output.")
        if is_of_path and negate:
            params["negated"] = True
        assertion = Assertion(
            type=raw["type"],
            check=check,
            name=written.get("name") or _name(raw["type"], raw),
            params=params,
            weight=float(written.get("weight", 1.0)),
            required=kind.required_score(written),
            negate=negate,
            metric=written.get("metric"),
        )
        examine_assertion(assertion, written, loc, problems, self._notes)
        if self._notes is not None:
            note_empty(assertion, loc, problems)
        return assertion if is_of_path else _at_path(assertion, written.get("path"))

    def _of_workflow_files(
        self, raw: Mapping[str, Any], kind: str, loc: Loc, problems: Problems
    ) -> Assertion | None:
        """Return an assertion by the rules of workflow files."""
        rest = {key: value for key, value in raw.items() if key not in {"path", "name"}}
        assertion = read_workflow_assertion(
            {**rest, "type": kind},
            loc,
            problems,
            block=None,
            folder=self._folder,
            graders=self._graders,
            warnings=self._notes,
        )
        name, path = raw.get("name"), raw.get("path")
        for key, value in (("name", name), ("path", path)):
            if key in raw and (not isinstance(value, str) or not value):
                problems.add((*loc, key), f"expected text, got {describe(value)}")
                return None
        if assertion is None:
            return None
        if name:
            assertion = assertion._replace(name=name)
        return _at_path(assertion, path)


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
    for name in ("value", "values", "pattern", "threshold"):
        if name in assertion.params:
            params[name] = assertion.params[name]
    if assertion.negate:
        params["negated"] = True
    check = "at-path-later" if assertion.check in AWAITED else "at-path"
    return assertion._replace(check=check, params=params, transform=None)


def _name(kind: str, raw: Mapping[str, Any]) -> str:
    subject = raw.get("node_id") or raw.get("callable") or raw.get("pattern") or raw.get("value")
    if isinstance(subject, str | int | float) and not isinstance(subject, bool):
        return f"{kind}-{str(subject)[:30]}"
    return kind
