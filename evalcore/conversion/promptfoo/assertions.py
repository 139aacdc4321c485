"""promptfoo's assertions in the words of suite files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evalcore.conversion.converted import Notes
from evalcore.conversion.promptfoo.assertion_words import WORDS, Written, as_member
from evalcore.conversion.promptfoo.checks_module import ChecksModule
from evalcore.conversion.promptfoo.files import (
    NotTakenOverError,
    is_code,
    is_reference,
    named_files,
    python_reference,
    read_value,
)
from evalcore.conversion.promptfoo.judges import GradingProviders
from evalcore.conversion.promptfoo.templates import RenderError, render
from evalcore.conversion.promptfoo.transforms import json_path

Assertion = dict[str, Any]

_PATH: Final = "outputs.primary_output"
_READ_KEYS: Final = ("type", "value", "threshold", "weight", "metric", "transform", "provider")
_PYTHON: Final = "python"


@dataclass(frozen=True, slots=True)
class TestContext:
    """What the assertions of a test share: its variables, its transforms and its judge."""

    variables: Mapping[str, Any]
    transforms: Sequence[str]
    judge: Any
    position: str


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
        if threshold:
            return self._composite(listed, threshold, test)
        assertions = []
        for index, raw in enumerate(listed):
            position = f"{test.position}.assert[{index}]"
            if isinstance(raw, Mapping) and raw.get("type") == "assert-set":
                inner = TestContext(test.variables, test.transforms, test.judge, position)
                limit = raw.get("threshold")
                members = self.read_all(raw.get("assert") or (), limit, inner)
                assertions.extend(members)
                continue
            assertion = self._read(raw, test, position)
            if assertion is not None:
                assertions.append(assertion)
        return assertions

    def _composite(
        self, listed: Sequence[Any], threshold: float, test: TestContext
    ) -> list[Assertion]:
        """Return the assertions as one whose score reaches the threshold, as promptfoo counts."""
        members = []
        path: str | None = None
        for index, raw in enumerate(listed):
            position = f"{test.position}.assert[{index}]"
            assertion = self._read(raw, test, position)
            if assertion is None:
                continue
            path = assertion.pop("path", path)
            member = as_member(assertion)
            if member is None:
                reason = f"{raw.get('type')} under a 'threshold': no counterpart; the score is that"
                self._notes.add(f"{reason} of the other assertions", position)
                continue
            members.append(member)
        if not members:
            return []
        composite: Assertion = {"type": "composite", "threshold": threshold, "assertions": members}
        return [composite | ({"path": path} if path else {})]

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
        path, is_parsed = self._path(raw.get("transform"), test)
        if kind == _PYTHON or (is_reference(raw.get("value")) and _is_python(raw["value"])):
            assertion = self._python(raw, test, is_parsed=is_parsed)
        else:
            word = WORDS.get(kind)
            if word is None:
                raise NotTakenOverError(_reason(kind))
            value = self._value(raw.get("value"), test.variables)
            assertion = word(Written(raw, value))
            if kind in _OTHER_FORMULAS:
                self._notes.add(f"{kind}: {_OTHER_FORMULAS[kind]}")
            if assertion["type"] == "llm_judge":
                assertion |= self._judges.config(raw.get("provider") or test.judge, position)
        if raw["type"] != kind:
            assertion["type"] = f"not-{assertion['type']}"
        for key in ("weight", "metric"):
            if raw.get(key) not in (None, ""):
                assertion[key] = raw[key]
        for key in raw.keys() - {*_READ_KEYS, "config"}:
            self._notes.add(f"'{key}' of an assertion is not taken over", position)
        return assertion | ({"path": path} if path else {})

    def _path(self, own: Any, test: TestContext) -> tuple[str | None, bool]:
        """Return the path to what is checked, and whether the output was parsed as JSON."""
        steps, scripts = "", [*test.transforms, *([own] if own else [])]
        for script in scripts:
            path = json_path(str(script))
            if path is None:
                raise NotTakenOverError(f"the transform {str(script)[:60]!r} is a program")
            steps += path[1:]
        return (f"{_PATH}{_steps(steps)}" if steps else None), bool(scripts)

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

    def _python(self, raw: Mapping[str, Any], test: TestContext, *, is_parsed: bool) -> Assertion:
        value, threshold = raw.get("value"), raw.get("threshold")
        if not isinstance(value, str):
            raise NotTakenOverError("its 'value' is no text")
        reference = python_reference(value) if is_reference(value) else None
        if reference is None:
            code = render(value, test.variables)
            name = self._module.add_inline(code, threshold, is_parsed=is_parsed)
        else:
            file, function = reference
            name = self._module.add_file(
                file, function or "get_assert", threshold, is_parsed=is_parsed
            )
        written: Assertion = {"type": _PYTHON, "callable": self._module.callable(name)}
        return written | ({"config": raw["config"]} if raw.get("config") else {})


_OTHER_FORMULAS: Final = {
    "bleu": "the score of texts that share few words is 0 here, a little more in promptfoo",
    "rouge-n": "words are compared in lower case and without punctuation, unlike in promptfoo",
    "similar": "embeddings are of the model text-embedding-3-small, unless the suite names another",
}


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
