"""Assertions in the words of test files → the engine's checks.

Regular expressions are ECMAScript's; `starts-with`, `ends-with` and `equals` trim as ECMAScript
does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from evalcore.checks.base import AssertionValueError
from evalcore.checks.dialects import AssertionType, assertion_types
from evalcore.checks.registry import Dialect
from evalcore.errors import EvalError, LoadError, UsageError
from evalcore.formats.assertion_files import (
    DEEPEST_INCLUDE,
    AssertionTemplates,
    ProgramAssertion,
    is_include,
)
from evalcore.formats.graders import Graders
from evalcore.formats.warnings import CaseWarnings, examine_assertion, note_empty
from evalcore.model.assertion import Assertion
from evalcore.problems import Problems
from evalcore.trust.secrets import escaped
from evalcore.wording import Loc, describe, suggest_assertion

DEFAULT_REQUIRED: Final = 0.8
MAX_SHARED_ASSERTIONS: Final = 1_000
_LONGEST_NAME: Final = 30

ReadAssertion = Callable[[Any, Loc, Problems], Assertion | None]


class AssertionReader:
    """Reads assertions; those that are written alike are one object.

    `programs` are custom assertion types, `templates` opens what is included. `notes` collects keys
    that have no effect. `read_other` reads members of a composite that test files cannot write:
    those of other types, and those with a `path`.
    """

    def __init__(
        self,
        graders: Graders,
        programs: Mapping[str, ProgramAssertion] | None = None,
        notes: CaseWarnings | None = None,
        templates: AssertionTemplates | None = None,
        read_other: ReadAssertion | None = None,
    ) -> None:
        self._graders = graders
        self._programs = programs or {}
        self._notes = notes
        self._templates = templates
        self._read_other = read_other
        # Whether `${{ … }}` is text in what is read.
        self.verbatim = False
        self._included: dict[Path, list[Assertion]] = {}
        # The templates that are being read, the outermost first.
        self._including: list[Path] = []
        self._types = {
            spelling: kind
            for kind in assertion_types(Dialect.TEST).values()
            for spelling in kind.spellings
        }
        # By what was validated: `1` and `true` are told apart there.
        self._validated: dict[tuple[tuple[str, Any], ...], Assertion] = {}

    def read_all(self, raw: Any, loc: Loc, problems: Problems, label: str = "") -> list[Assertion]:
        """Return the assertions of a list; every mistake in them is noted.

        Its plain texts are the criteria of one `rubrics`, which stands where the first of them is.
        """
        assertions: list[Assertion] = []
        criteria: Any = None
        for index, entry in enumerate(raw or ()):
            assertion = None
            if isinstance(entry, str) and entry not in self._types:
                if criteria is None:
                    criteria = _rubric([text for text in raw if isinstance(text, str)])
                    assertion = self.read(criteria, (*loc, index), problems, label)
            elif is_include(entry) and self._templates is not None:
                at = (*loc, index, "include")
                assertions += self._include(entry["include"], at, problems, label)
            else:
                assertion = self.read(entry, (*loc, index), problems, label)
            if assertion is not None:
                assertions.append(assertion)
        return assertions

    def read_members(self, raw: Sequence[Any], loc: Loc, problems: Problems) -> list[Assertion]:
        """Return the assertions of a composite; every mistake in them is noted."""
        members: list[Assertion] = []
        for index, entry in enumerate(raw):
            if is_include(entry) and self._templates is not None:
                members += self._include(entry["include"], (*loc, index, "include"), problems, "")
            elif (assertion := self._read_member(entry, (*loc, index), problems)) is not None:
                members.append(assertion)
        return members

    def _read_member(self, raw: Any, loc: Loc, problems: Problems) -> Assertion | None:
        if self._read_other is None or not isinstance(raw, Mapping):
            return self.read(raw, loc, problems)
        kind = raw.get("type")
        is_of_test_files = not isinstance(kind, str) or (
            kind in self._types and not _is_negated(kind)
        )
        is_own = is_of_test_files and "path" not in raw
        return (self.read if is_own else self._read_other)(raw, loc, problems)

    def _include(
        self, name: object, loc: Loc, problems: Problems, label: str
    ) -> Sequence[Assertion]:
        """Return the assertions of a template; its mistakes are noted with its own lines, once."""
        if self._templates is None or not isinstance(name, str) or not name:
            problems.add(loc, f"expected the name of a template, got {describe(name)}", label=label)
            return ()
        beside = self._including[-1].parent if self._including else None
        try:
            path = self._templates.find(name, beside)
            if path in self._included:
                return self._included[path]
            if path in self._including:
                raise UsageError(f"'{name}' includes itself")
            if len(self._including) == DEEPEST_INCLUDE:
                raise UsageError(f"'{name}' is included more than {DEEPEST_INCLUDE} files deep")
            template = self._templates.open(path)
        except LoadError as error:
            problems.include(error.problems)
            return ()
        except EvalError as error:
            problems.add(loc, str(error), label=label)
            return ()
        self._including.append(path)
        with self._graders.reading_beside(path.parent):
            included = self.read_all(template.entries, ("assertions",), template.problems)
        self._including.pop()
        problems.include(template.problems.noted)
        self._included[path] = included
        return included

    def read(self, raw: Any, loc: Loc, problems: Problems, label: str = "") -> Assertion | None:
        """Return the assertion at `loc`; None, and every mistake noted, if it is wrong."""
        name = raw.get("type") if isinstance(raw, dict) else None
        program = self._programs.get(name) if isinstance(name, str) else None
        if program is not None and name not in self._types:
            written = program.written(raw)
            if self.verbatim and "config" in written:
                written["config"] = escaped(written["config"])
            inner = self.read(written, loc, problems, label)
            return None if inner is None else inner._replace(type=program.name)
        kind = self._type(raw, loc, problems, label)
        if kind is None:
            return None
        try:
            written = kind.validate(raw)
        except ValidationError as error:
            problems.add_invalid(error, raw, kind.shape, loc, label=label)
            return None
        if kind.takes_others:  # their values are of any type, and `1` is equal to `true`
            return self._new(kind, written, loc, problems, label)
        key = tuple(written.items())
        try:
            assertion = self._validated.get(key)
        except TypeError:  # a list as value
            return self._new(kind, written, loc, problems, label)
        if assertion is None:
            assertion = self._new(kind, written, loc, problems, label)
            # `required: true` and `required: 1` are equal to Python and differ here. What many
            # tests repeat comes up early; values of a test's own would fill any cache.
            is_full = len(self._validated) >= MAX_SHARED_ASSERTIONS
            if assertion is not None and not is_full and "required" not in written:
                self._validated[key] = assertion
        return assertion

    def _type(self, raw: Any, loc: Loc, problems: Problems, label: str) -> AssertionType | None:
        if not isinstance(raw, dict):
            problems.add(loc, f"expected a mapping, got {describe(raw)}", label=label)
            return None
        name = raw.get("type")
        kind = self._types.get(name) if isinstance(name, str) else None
        if kind is None:
            problems.add((*loc, "type"), self._type_mistake(raw), label=label)
        return kind

    def _new(
        self,
        kind: AssertionType,
        written: Mapping[str, Any],
        loc: Loc,
        problems: Problems,
        label: str,
    ) -> Assertion | None:
        before = problems.count
        try:
            reader = self._graders.at(loc, problems, self.read_members) if kind.word.reads else None
            check, params = kind.read(written, reader)
            has_own = "required" in kind.own_keys
            required = kind.required_score(written) if has_own else required_score(written)
        except AssertionValueError as error:
            problems.add((*loc, *error.loc), str(error), label=label)
            return None
        if problems.count > before:
            return None
        if self._notes is not None:
            for path, reason in kind.idle_keys(written):
                self._notes.add(f"has no effect: {reason}", (*loc, *path), problems)
        negated = _is_negated(written["type"])
        if negated and "negate" in written:
            message = f"is given beside '{written['type']}', which negates; keep one of them"
            problems.add((*loc, "negate"), message, label=label)
            return None
        word = f"not-{kind.name}" if negated else kind.name
        assertion = Assertion(
            word,
            check,
            written.get("name") or _name(word, written.get("value")),
            params,
            None,
            float(written.get("weight", 1.0)),
            required,
            negated or written.get("negate", False),
        )
        examine_assertion(assertion, written, loc, problems, self._notes)
        if self._notes is not None:
            note_empty(assertion, loc, problems, label)
        return assertion if problems.count == before else None

    def _type_mistake(self, raw: Mapping[str, Any]) -> str:
        if "type" not in raw:
            for key in raw:
                if key in self._types and not _is_negated(key):
                    return f"is required; write {{type: {key}, value: …}}"
            return "is required"
        if not isinstance(raw["type"], str):
            return f"expected text, got {describe(raw['type'])}"
        return f"unknown assertion {describe(raw['type'])}." + suggest_assertion(
            raw["type"], [*self._types, *self._programs]
        )


def _is_negated(spelling: str) -> bool:
    return spelling.startswith(("not-", "not_"))


def required_score(written: Mapping[str, Any]) -> float | None:
    """Return the score below which the test fails: `required: true` means 0.8."""
    if "required" in written and "min_score" in written:
        raise AssertionValueError("'required' and its alias 'min_score' are both given; keep one")
    required = written.get("required", written.get("min_score"))
    if isinstance(required, bool):
        return DEFAULT_REQUIRED if required else None
    return None if required is None else float(required)


def _name(kind: str, value: Any) -> str:
    if value is None:
        return kind.replace("-", "_")
    if isinstance(value, list):
        return f"{kind}-{len(value)}"
    return f"{kind}-{str(value)[:_LONGEST_NAME]}"


def _rubric(criteria: list[str]) -> dict[str, Any]:
    """Return the assertion that plain texts are; each has the weight of an assertion."""
    return {"type": "rubrics", "criteria": criteria, "weight": len(criteria)}
