"""Datasets of pydantic-evals → suites: every case passes each of its evaluators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from evalcore.importers.converted import (
    Converted,
    ConvertedCase,
    Notes,
    as_criteria,
    check_cases,
    note_default_judge,
    unique_id,
)
from evalcore.importers.files import ForeignFile, PydanticDataset, check_shape
from evalcore.importers.registry import ImportOptions
from evalcore.importers.rows import metadata_of
from evalcore.model.suite import Format

Assertion = dict[str, Any]

_JUDGED: Final = (
    "LLMJudge and GEval: the judge answers evalcore's prompt with a score, which passes from 0.8 "
    "on, and sees input, output and expected output in any case"
)
_ITEMS: Final = "Contains of a mapping: its items have to stand in an answer that is a mapping"
_MEMBERS: Final = (
    "Contains of a value that is no text: it is a member of a list, or stands in the JSON text of "
    "any other answer"
)
_MODELS: Final = {"openai": "openai", "openai-chat": "openai", "anthropic": "anthropic"}
_JUDGE_MODEL: Final = "openai:gpt-5.2"  # pydantic-evals' own default
# A text is what is no other value: a target answers with text.
_JSON_TYPES: Final[Mapping[str, Any]] = {
    "str": ["object", "array"],
    "dict": "object",
    "list": "array",
    "bool": "boolean",
    "int": "integer",
    "float": "number",
}


def convert(file: ForeignFile, _source: str, options: ImportOptions, notes: Notes) -> Converted:
    """Return the suite of a dataset; raise `LoadError` if it is none."""
    raw = file.value
    check_shape(file, raw, PydanticDataset)
    if raw.get("report_evaluators"):
        notes.add("report_evaluators: analyses of a whole report have no counterpart")
    reader = _Evaluators(notes)
    converted: dict[str, ConvertedCase] = {}
    for index, case in enumerate(raw["cases"]):
        position = f"cases[{index}]"
        listed = [*_evaluators(raw, "evaluators"), *_evaluators(case, f"{position}.evaluators")]
        assertions = [each for at, spec in listed for each in reader.read(spec, case, at)]
        if listed and not assertions:
            notes.add("the case is left out: nothing that it checks has a counterpart", position)
            continue
        name = unique_id(str(case.get("name") or f"case-{index + 1}"), converted)
        converted[name] = ConvertedCase(
            name,
            case["inputs"],
            assertions,
            expected_output=case.get("expected_output"),
            metadata=metadata_of(case.get("metadata")),
        )
    check_cases(file.name, converted, notes)
    return Converted(
        Format.SUITE,
        str(raw.get("name") or options.name),
        tuple(converted.values()),
        judges=reader.judges,
    )


def _evaluators(holder: Mapping[str, Any], position: str) -> Iterator[tuple[str, Any]]:
    for index, spec in enumerate(holder.get("evaluators") or ()):
        yield f"{position}[{index}]", spec


class _Evaluators:
    """Turns evaluators into assertions; `judges` are the targets that they ask."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._judges: dict[str, str] = {}

    @property
    def judges(self) -> tuple[Mapping[str, Any], ...]:
        """The targets that grade, the first one called `judge`."""
        models = ((name, *model.split(":", 1)) for model, name in self._judges.items())
        return tuple(
            {"name": name, "provider": _MODELS[provider], "model": model}
            for name, provider, model in models
        )

    def read(self, spec: Any, case: Mapping[str, Any], position: str) -> list[Assertion]:
        """Return the assertions of an evaluator; note one that has no counterpart."""
        if isinstance(spec, Mapping) and len(spec) == 1:
            ((name, arguments),) = spec.items()
        elif isinstance(spec, Mapping) and "name" in spec:
            name, arguments = spec["name"], spec.get("arguments")
            if isinstance(arguments, list) and len(arguments) == 1:
                arguments = arguments[0]
        else:
            name, arguments = spec, None
        read = _READERS.get(str(name))
        if read is None:
            self._notes.add(f"{name}: an evaluator of your own, or without a counterpart", position)
            return []
        fields = _keywords(str(name), arguments)
        if name == "EqualsExpected":
            fields = {"value": case.get("expected_output")}
            if fields["value"] is None:  # a case without one compares nothing
                return []
        assertions = read(self, fields, position)
        title = isinstance(arguments, Mapping) and arguments.get("evaluation_name")
        return [{**each, "name": str(title)} if title else each for each in assertions]

    def contains(self, fields: Mapping[str, Any], _position: str) -> list[Assertion]:
        """`Contains`: in a text, as a member of a list, as items of a mapping."""
        value = fields.get("value")
        if fields.get("as_strings") or (isinstance(value, str) and not _exact_case(fields)):
            kind = "contains" if _exact_case(fields) else "icontains"
            return [{"type": kind, "value": str(value)}]
        if isinstance(value, Mapping):
            self._notes.add(_ITEMS)
            return [
                {
                    "type": "output.equals",
                    "path": f"outputs.primary_output{_step(key)}",
                    "value": member,
                }
                for key, member in value.items()
            ]
        if not isinstance(value, str):
            self._notes.add(_MEMBERS)
        return [{"type": "output.contains", "value": value}]

    def is_instance(self, fields: Mapping[str, Any], position: str) -> list[Assertion]:
        """`IsInstance`: the JSON type of the output; other types are not in a JSON value."""
        name = str(fields.get("type_name", ""))
        if name not in _JSON_TYPES:
            reason = f"IsInstance {name}: outputs are JSON values, which have no such type"
            self._notes.add(reason, position)
            return []
        self._notes.add(
            "IsInstance: an answer that is text is also of the type that its JSON has, and one "
            "that is a JSON object or array is no str"
        )
        kind = "not-is-json" if name == "str" else "is-json"
        return [{"type": kind, "value": {"type": _JSON_TYPES[name]}}]

    def max_duration(self, fields: Mapping[str, Any], position: str) -> list[Assertion]:
        """`MaxDuration`: in seconds there, in milliseconds here."""
        seconds = fields.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            self._notes.add("MaxDuration: only a number of seconds is taken over", position)
            return []
        return [{"type": "metric.latency_ms.max", "value": seconds * 1000}]

    def judged(self, fields: Mapping[str, Any], position: str) -> list[Assertion]:
        """`LLMJudge` and `GEval`."""
        criteria = str(fields.get("rubric") or fields.get("criteria") or "")
        steps = fields.get("evaluation_steps")
        listed = enumerate(steps if isinstance(steps, list) else (), 1)
        criteria += "".join(f"\n{number}. {step}" for number, step in listed)
        if fields.get("assertion") is False:
            self._notes.add("LLMJudge that only scores: it decides nothing here either", position)
            return []
        if not criteria.strip():
            self._notes.add("a judge without a rubric", position)
            return []
        self._notes.add(_JUDGED)
        written: Assertion = {"type": "llm_judge", "criteria": as_criteria(criteria)}
        judge = self._judge(fields.get("model"), position)
        return [written if judge == "judge" else {**written, "config": {"judge": judge}}]

    def _judge(self, model: Any, position: str) -> str:
        name = str(model or _JUDGE_MODEL)
        if name.partition(":")[0] not in _MODELS:
            reason = f"the judge {name}: no target here; {_JUDGE_MODEL} judges instead"
            self._notes.add(reason, position)
            name = _JUDGE_MODEL
        number = len(self._judges) + 1
        label = self._judges.setdefault(name, "judge" if number == 1 else f"judge-{number}")
        if not model:
            provider, _, model_name = name.partition(":")
            judge = {"name": label, "provider": provider, "model": model_name}
            note_default_judge(self._notes, judge, "pydantic-evals' default", position)
        return label


def _equals(_reader: _Evaluators, fields: Mapping[str, Any], _position: str) -> list[Assertion]:
    return [{"type": "output.equals", "value": fields.get("value")}]


def _calls(key: str, name: str) -> Callable[[_Evaluators, Mapping[str, Any], str], list[Assertion]]:
    def maximum(_: _Evaluators, fields: Mapping[str, Any], _position: str) -> list[Assertion]:
        return [{"type": "execution-metrics", key: fields.get(name), "threshold": 1}]

    return maximum


_READERS: Final[Mapping[str, Callable[[_Evaluators, Mapping[str, Any], str], list[Assertion]]]] = {
    "Equals": _equals,
    "EqualsExpected": _equals,
    "Contains": _Evaluators.contains,
    "IsInstance": _Evaluators.is_instance,
    "MaxDuration": _Evaluators.max_duration,
    "LLMJudge": _Evaluators.judged,
    "GEval": _Evaluators.judged,
    "MaxToolCalls": _calls("max_tool_calls", "max_calls"),
    "MaxModelRequests": _calls("max_llm_calls", "max_requests"),
}

# What an evaluator's only argument is called, where a file writes it without its name.
_ONLY: Final = {
    "Equals": "value",
    "Contains": "value",
    "IsInstance": "type_name",
    "MaxDuration": "seconds",
    "LLMJudge": "rubric",
    "MaxToolCalls": "max_calls",
    "MaxModelRequests": "max_requests",
}


def _keywords(name: str, arguments: Any) -> Mapping[str, Any]:
    """Return the arguments by their names: `{Contains: x}` is `{Contains: {value: x}}`."""
    only = _ONLY.get(name)
    if isinstance(arguments, Mapping) and (only is None or only in arguments):
        return arguments
    if only is None or arguments is None:
        return {}
    return {only: arguments}


def _exact_case(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("case_sensitive", True))


def _step(key: Any) -> str:
    return f'["{key}"]' if not str(key).isidentifier() else f".{key}"
