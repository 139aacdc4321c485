"""One test of a test file → a case (spec/test-files.md, Test level)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalcore.errors import EvalError
from evalcore.formats.environment import Variables, interpolate
from evalcore.formats.problems import Problems
from evalcore.formats.shapes import adapter
from evalcore.formats.source import Loc
from evalcore.formats.test_file_assertions import (
    AssertionValueError,
    make_assertion,
    unavailable,
)
from evalcore.formats.test_file_shapes import GRADERS, Test, TestAlias
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.trust.files import repository_root, resolve_inside

UNUSED_CRITERIA = (
    "Test '{id}': criteria is defined but no evaluator in assertions will evaluate it. "
    "Add 'type: llm-grader' to assertions, or remove criteria if it is documentation-only."
)
NO_ANSWER = (
    "has nothing that answers it: give it `fixtures: {output: …}`, an `execution.target`, "
    "or the suite a target (`execution.target`, a target named 'default', --target NAME)"
)
MAX_WARNINGS = 20
MAX_SHARED_ASSERTIONS = 10_000


@dataclass(frozen=True, slots=True)
class SuiteDefaults:
    """What the suite level gives each test."""

    folder: Path
    assertions: tuple[Assertion, ...] = ()
    messages: tuple[Mapping[str, Any], ...] = ()
    input_files: tuple[str, ...] = ()
    threshold: float = 0.8
    target_names: frozenset[str] = frozenset()
    has_target: bool = False
    forced_target: bool = False
    has_workspace: bool = False
    skip: bool = False


class TestReader:
    """Turns raw tests into cases; knows which ids it has seen."""

    def __init__(self, defaults: SuiteDefaults, variables: Variables) -> None:
        self.defaults = defaults
        self.variables = variables
        self.warnings: list[str] = []
        self.warned = 0
        self._seen: dict[str, int | None] = {}
        self._validate = adapter(Test).validate_python
        self._maker = AssertionMaker()

    def read(self, raw: Any, loc: Loc, problems: Problems, *, marked: bool = True) -> Case | None:
        """Return the case of the test at `loc`, or note every mistake in it and return None.

        `marked` says whether its text may hold `${{ … }}`.
        """
        before = problems.count
        if marked:
            raw = interpolate(raw, self.variables, loc, problems)
        test = self._checked(raw, loc, problems)
        if test is None:
            return None
        case_id = test["id"]
        if case_id in self._seen:
            first = self._seen[case_id]
            where = f" (first at line {first})" if first else ""
            problems.add((*loc, "id"), f"duplicate test id '{case_id}'{where}")
        else:
            # Lines of a long file are found by reading again, so only cheap positions are kept.
            self._seen[case_id] = problems.locate(loc) if problems.cheap else None
        assertions = self._assertions(test, loc, problems)
        fixture = self._fixture(test)
        self._check_answer(test, fixture, loc, problems)
        if problems.count > before:
            return None
        return self._case(test, assertions, fixture, loc, problems)

    def _checked(self, raw: Any, loc: Loc, problems: Problems) -> dict[str, Any] | None:
        """Return the validated test with the aliases resolved."""
        try:
            if type(raw) is dict and "assert" not in raw:
                checked: dict[str, Any] = self._validate(raw)
            else:
                checked = adapter(TestAlias).validate_python(raw)
        except ValidationError as error:
            label = raw.get("id") if isinstance(raw, dict) else None
            problems.add_invalid(error, raw, TestAlias, loc, label=_label(label))
            return None
        for alias, name in (("assert", "assertions"), ("expected_outcome", "criteria")):
            if alias in checked:
                if name in checked:
                    problems.add((*loc, alias), f"is an alias of '{name}'; keep one of them")
                checked[name] = checked[alias]
        return checked

    def _assertions(
        self, test: Mapping[str, Any], loc: Loc, problems: Problems
    ) -> tuple[Assertion, ...]:
        """Return the test's assertions, then the suite's; the default grader if there is none."""
        execution = test.get("execution") or {}
        own = self._maker.make(test.get("assertions"), (*loc, "assertions"), problems)
        if execution:
            place = (*loc, "execution", "assertions")
            own.extend(self._maker.make(execution.get("assertions"), place, problems))
        if test.get("rubrics"):
            own.append(unavailable("rubrics", {}))
        if not self.defaults.skip and not execution.get("skip_defaults"):
            own.extend(self.defaults.assertions)
        criteria = test.get("criteria")
        if not own:
            has_reference = "expected_output" in test
            if "assertions" in test or not (criteria or has_reference):
                message = "needs one of criteria, expected_output, assertions"
                problems.add(loc, message, label=_label(test["id"]))
            return (unavailable("llm-grader", {}),)
        if criteria and not any(assertion.type in GRADERS for assertion in own):
            self.warned += 1
            if self.warned <= MAX_WARNINGS:
                self.warnings.append(UNUSED_CRITERIA.format(id=test["id"]))
        return tuple(own)

    def _fixture(self, test: Mapping[str, Any]) -> Evidence | None:
        given = test.get("fixtures")
        if given is None:
            return None
        metrics = given.get("metrics")
        return Evidence(given["output"], metrics=Metrics(**metrics) if metrics else UNMEASURED)

    def _check_answer(
        self, test: Mapping[str, Any], fixture: Evidence | None, loc: Loc, problems: Problems
    ) -> None:
        """Note a test that nothing answers, or whose target is unknown."""
        execution = test.get("execution") or {}
        name = execution.get("target")
        if execution.get("targets"):
            message = "is read at the suite level only; name one `target` here"
            problems.add((*loc, "execution", "targets"), message)
        if name is not None and not self.defaults.forced_target:
            if name not in self.defaults.target_names:
                known = ", ".join(sorted(self.defaults.target_names)) or "none is defined"
                message = f"unknown target '{name}' (known: {known})"
                problems.add((*loc, "execution", "target"), message)
        elif fixture is None and not self.defaults.has_target:
            problems.add(loc, NO_ANSWER, label=_label(test["id"]))

    def _case(
        self,
        test: Mapping[str, Any],
        assertions: tuple[Assertion, ...],
        fixture: Evidence | None,
        loc: Loc,
        problems: Problems,
    ) -> Case:
        execution = test.get("execution") or {}
        defaults = self.defaults
        threshold = execution.get("threshold")
        reason = None
        if fixture is None and (defaults.has_workspace or test.get("workspace")):
            reason = "this version does not prepare workspaces; give the test a fixture"
        metadata = test.get("metadata") or {}
        if "conversation_id" in test:
            metadata = {**metadata, "conversation_id": test["conversation_id"]}
        return Case(
            id=test["id"],
            input=self._input(test, loc, problems),
            assertions=assertions,
            fixture=fixture,
            target=None if defaults.forced_target else execution.get("target"),
            threshold=defaults.threshold if threshold is None else threshold,
            expected_output=test.get("expected_output"),
            criteria=test.get("criteria"),
            tags=tuple(test.get("tags", ())),
            metadata=metadata,
            reason_not_executable=reason,
        )

    def _input(self, test: Mapping[str, Any], loc: Loc, problems: Problems) -> Any:
        """Return the test's input with the suite's messages before it and the files in it."""
        execution = test.get("execution") or {}
        skip = self.defaults.skip or execution.get("skip_defaults")
        files = list(() if skip else self.defaults.input_files) + list(test.get("input_files", ()))
        before = () if skip else self.defaults.messages
        own = test["input"]
        if not files and not before:
            return own
        messages = [*before, *as_messages(own)]
        if files:
            messages[-1] = self._with_files(messages[-1], files, loc, problems)
        return messages

    def _with_files(
        self, message: Mapping[str, Any], files: list[str], loc: Loc, problems: Problems
    ) -> dict[str, Any]:
        content = message.get("content", "")
        segments = [{"type": "text", "value": content}] if isinstance(content, str) else content
        folder = self.defaults.folder
        attached = []
        for name in files:
            try:
                resolve_inside(repository_root(folder), folder, name)
            except EvalError as error:
                problems.add((*loc, "input_files"), str(error))
            attached.append({"type": "file", "value": name})
        return {**message, "content": [*attached, *segments]}


def as_messages(value: Any) -> list[Any]:
    """Return an input as a list of messages; a text or an object is one user message."""
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    import json

    return [{"role": "user", "content": json.dumps(value, ensure_ascii=False)}]


class AssertionMaker:
    """Makes assertions of validated mappings; those that are written alike are one object."""

    def __init__(self) -> None:
        self._made: dict[tuple[tuple[str, Any], ...], Assertion] = {}

    def make(self, raw: Any, loc: Loc, problems: Problems) -> list[Assertion]:
        """Return the assertions; note those that are wrong all the same."""
        made = []
        for index, entry in enumerate(raw or ()):
            try:
                made.append(self._one(entry))
            except AssertionValueError as error:
                problems.add((*loc, index), str(error))
        return made

    def _one(self, raw: dict[str, Any]) -> Assertion:
        # `required: true` and `required: 1` are equal to Python and differ here.
        if "required" in raw or "min_score" in raw:
            return make_assertion(raw)
        key = tuple(raw.items())
        try:
            found = self._made.get(key)
        except TypeError:  # a list as value
            return make_assertion(raw)
        if found is None:
            if len(self._made) >= MAX_SHARED_ASSERTIONS:
                self._made.clear()
            found = self._made[key] = make_assertion(raw)
        return found


def _label(case_id: object) -> str:
    return f"test '{case_id}'" if isinstance(case_id, str) else ""
