"""promptfoo's assertions in the words of suite files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from evalcore.conversion.converted import Notes
from evalcore.conversion.promptfoo.assertion_words import (
    DIFFERENCES,
    WORDS,
    Written,
    as_member,
    has_formats,
)
from evalcore.conversion.promptfoo.cases import assert_positions
from evalcore.conversion.promptfoo.checks_module import PARSED, UNCHANGED, ChecksModule
from evalcore.conversion.promptfoo.files import (
    NotTakenOverError,
    is_code,
    is_reference,
    named_files,
    python_reference,
    read_value,
)
from evalcore.conversion.promptfoo.judges import GradingProviders
from evalcore.conversion.promptfoo.templates import RenderError, placeholders, render
from evalcore.conversion.promptfoo.transforms import json_path, path_steps
from evalcore.mistakes.foreign_text import one_line

Assertion = dict[str, Any]

_PATH: Final = "outputs.primary_output"
_READ_KEYS: Final = ("type", "value", "threshold", "weight", "metric", "transform", "provider")
_PYTHON: Final = "python"
_TITLE_CHARACTERS: Final = 60
_SET: Final = "assert-set"
_SET_KEYS: Final = {"type", "assert", "threshold", "weight"}


@dataclass(frozen=True, slots=True)
class TestContext:
    """What the assertions of a test share: its variables, its transforms and its judge.

    `positions` are those of the assertions in the files.
    """

    variables: Mapping[str, Any]
    transforms: Sequence[str]
    judge: Any
    positions: Sequence[str]


class Assertions:
    """Turns assertions into those of a suite; notes those without a counterpart."""

    def __init__(
        self, module: ChecksModule, judges: GradingProviders, notes: Notes, folder: Path
    ) -> None:
        self._module, self._judges, self._notes, self._folder = module, judges, notes, folder

    def read_all(
        self, listed: Sequence[Any], threshold: float | None, test: TestContext
    ) -> list[Assertion]:
        """Return the assertions of a test; under a `threshold` they are one composite."""
        if threshold is not None:
            composite = self._composite(listed, threshold, test)
            return [composite] if composite else []
        assertions = []
        for raw, position in zip(listed, test.positions, strict=True):
            if isinstance(raw, Mapping) and raw.get("type") == _SET:
                read = self._set(raw, position, test)
                assertions.extend(read if len(listed) == 1 else _weighted(read, raw.get("weight")))
                continue
            assertion = self._read(raw, test, position)
            if assertion is not None:
                assertions.append(assertion)
        return assertions

    def _set(self, raw: Mapping[str, Any], position: str, test: TestContext) -> list[Assertion]:
        """Return the assertions of an `assert-set`."""
        for key in raw.keys() - _SET_KEYS:
            self._notes.add(f"'{key}' of an assert-set is not taken over", position)
        members = raw.get("assert") or ()
        inner = replace(test, positions=assert_positions(position, len(members)))
        return self.read_all(members, raw.get("threshold"), inner)

    def _composite(
        self, listed: Sequence[Any], threshold: float | None, test: TestContext
    ) -> Assertion | None:
        """Return the assertions as one whose score reaches the threshold, as promptfoo counts.

        None if none of them has a counterpart.
        """
        members: list[Assertion] = []
        for raw, position in zip(listed, test.positions, strict=True):
            member: Assertion | None
            if isinstance(raw, Mapping) and raw.get("type") == _SET:
                inner = raw.get("assert") or ()
                positions = assert_positions(position, len(inner))
                member = self._composite(inner, None, replace(test, positions=positions))
                if member is not None and raw.get("weight") is not None:
                    member["weight"] = raw["weight"]
            else:
                assertion = self._read(raw, test, position)
                member = assertion and as_member(assertion)
            if member is None:
                self._notes.add("under a 'threshold': the score is that of the others", position)
            else:
                members.append(member)
        if not members:
            return None
        composite: Assertion = {"type": "composite", "assertions": _named(members)}
        return composite | ({} if threshold is None else {"threshold": threshold})

    def _read(self, raw: Any, test: TestContext, position: str) -> Assertion | None:
        if not isinstance(raw, Mapping) or not isinstance(raw.get("type"), str):
            self._notes.add("no assertion: it has no 'type'", position)
            return None
        try:
            return self._assertion(raw, test, position)
        except (NotTakenOverError, RenderError) as error:
            self._notes.add(f"{raw['type']}: {error}", position)
            return None

    def _assertion(self, raw: Mapping[str, Any], test: TestContext, position: str) -> Assertion:
        kind = raw["type"].removeprefix("not-")
        if raw.get("weight") == 0:
            raise NotTakenOverError("of weight 0 it only measures, and is left out")
        path, output = self._path(raw.get("transform"), test)
        if kind == _PYTHON or (is_reference(raw.get("value")) and _is_python(raw["value"])):
            assertion = self._python(raw, test, output)
        else:
            assertion = self._in_words(raw, kind, output, test, position)
        if raw["type"] != kind:
            assertion["type"] = f"not-{assertion['type']}"
        for key in ("weight", "metric"):
            if raw.get(key) not in (None, ""):
                assertion[key] = self._value(raw[key], test.variables)
        for key in raw.keys() - {*_READ_KEYS, "config"}:
            self._notes.add(f"'{key}' of an assertion is not taken over", position)
        return assertion | ({"path": path} if path else {})

    def _in_words(
        self, raw: Mapping[str, Any], kind: str, output: str, test: TestContext, position: str
    ) -> Assertion:
        """Return an assertion of a type that suites have, too."""
        word = WORDS.get(kind)
        if word is None:
            raise NotTakenOverError(_reason(kind))
        value = self._value(raw.get("value"), test.variables)
        for mark in placeholders(value) if isinstance(value, Mapping) else ():
            self._notes.add(f"{mark} in a value that is no text is not filled in", position)
        assertion = word(Written(raw, value))
        if kind in DIFFERENCES:
            self._notes.add(f"{kind}: {DIFFERENCES[kind]}")
        if kind in ("is-json", "contains-json") and has_formats(assertion.get("value")):
            self._notes.add("'format' in a JSON Schema is not checked", position)
        if output not in (UNCHANGED, PARSED):
            assertion = self._compared(assertion, output)
        elif assertion["type"] == "llm_judge":
            assertion |= self._judges.config(raw.get("provider") or test.judge, position)
        return assertion

    def _path(self, own: Any, test: TestContext) -> tuple[str | None, str]:
        """Return the path to what is checked, and the output that a Python assertion gets."""
        scripts = [*test.transforms, *([own] if own else [])]
        steps = [_transform(str(script)) for script in scripts]
        if any(isinstance(step, tuple) for step in steps):
            return None, self._module.add_transform(
                [step if isinstance(step, tuple) else path_steps(step) for step in steps]
            )
        path = "".join(step[1:] for step in steps if isinstance(step, str))
        return (f"{_PATH}{_steps(path)}" if path else None), PARSED if scripts else UNCHANGED

    def _compared(self, assertion: Assertion, output: str) -> Assertion:
        """Return an assertion on what a Python transform makes of the output."""
        kind = assertion["type"]
        if kind not in _COMPARED or (kind == "is-json" and "value" in assertion):
            raise NotTakenOverError("no counterpart behind a transform that is a program")
        config = {"word": kind} | ({"value": assertion["value"]} if "value" in assertion else {})
        name = self._module.add_comparison(output)
        return {
            "type": _PYTHON,
            "name": f"{kind} of the transformed output",
            "callable": self._module.callable(name),
            "config": config,
        }

    def _value(self, value: Any, variables: Mapping[str, Any]) -> Any:
        """Return the value with its templates filled in and its files read."""
        if is_reference(value):
            if is_code(value):
                raise NotTakenOverError(f"{value} is a program")
            return read_value(next(iter(named_files(self._folder, value))))
        if isinstance(value, str):
            return render(value, variables)
        if isinstance(value, list):
            return [
                self._value(each, variables) if isinstance(each, str) else each for each in value
            ]
        return value

    def _python(self, raw: Mapping[str, Any], test: TestContext, output: str) -> Assertion:
        value, threshold = raw.get("value"), raw.get("threshold")
        if not isinstance(value, str) or not value.strip():
            raise NotTakenOverError("its 'value' is no text")
        reference = python_reference(value) if is_reference(value) else None
        if reference is None:
            code = render(value, test.variables)
            name = self._module.add_inline(code, threshold, output)
        else:
            file, function = reference
            name = self._module.add_file(file, function or "get_assert", threshold, output)
        title = one_line(value.removeprefix("file://"), _TITLE_CHARACTERS)
        written: Assertion = {"type": _PYTHON, "callable": self._module.callable(name)}
        written["name"] = title
        return written | ({"config": raw["config"]} if raw.get("config") else {})


_COMPARED: Final = (
    *("contains", "icontains", "starts-with", "ends-with", "equals", "regex", "is-json"),
    *("contains-any", "contains-all", "icontains-any", "icontains-all"),
)


def _weighted(assertions: list[Assertion], weight: float | None) -> list[Assertion]:
    """Return the assertions of a set, which together weigh as much as the set."""
    own = [1.0 if each.get("weight") is None else float(each["weight"]) for each in assertions]
    share = (1.0 if weight is None else float(weight)) / (sum(own) or 1.0)
    return [
        {**each, "weight": round(each_weight * share, 6)}
        for each, each_weight in zip(assertions, own, strict=True)
    ]


def _named(members: list[Assertion]) -> list[Assertion]:
    """Return the members of a composite, each with a name of its own if types are repeated."""
    types = [str(member["type"]) for member in members]
    if len(set(types)) == len(types):
        return members
    return [
        {**member, "name": f"{kind}-{number}"}
        for number, (kind, member) in enumerate(zip(types, members, strict=True), 1)
    ]


def _transform(script: str) -> str | tuple[str, str]:
    """Return the JSONPath of a transform, or its Python file and function."""
    reference = python_reference(script) if is_reference(script) else None
    if reference is not None:
        return reference[0], reference[1] or "get_transform"
    path = json_path(script)
    if path is None:
        raise NotTakenOverError(f"the transform {script[:60]!r} is JavaScript")
    return path


def _is_python(value: str) -> bool:
    return python_reference(value) is not None


def _steps(path: str) -> str:
    """Return the steps of a JSONPath as paths of evidence write them."""
    return re.sub(r"\['([^']+)'\]", r'["\1"]', path)


_REASONS: Final = {
    "javascript": "JavaScript is not taken over; write it as `type: python`",
    "select-best": "it compares the answers of several providers: use a baseline and gates",
    "max-score": "it compares the answers of several providers: use a baseline and gates",
    "webhook": "a web service that grades is a `code-grader` that calls it",
    "human": "people are asked by the assertion `human`",
}


def _reason(kind: str) -> str:
    return _REASONS.get(kind, "no counterpart; write it as `type: python` or `llm_judge`")
