"""Logs and datasets of Inspect AI as suites, with its scorers in a module beside them."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from evalcore.formats.documents import raise_problem
from evalcore.importers.converted import (
    MODULE,
    Converted,
    ConvertedCase,
    Notes,
    as_criteria,
    as_input,
    chat_messages,
    check_cases,
    default_judge,
    expected_check,
    map_texts,
    text_of_parts,
    unique_id,
)
from evalcore.importers.files import ForeignFile, InspectLog, check_shape
from evalcore.importers.registry import ImportOptions
from evalcore.importers.rows import id_text, metadata_of, parsed_cell
from evalcore.model.suite import Format

CHECKS_MODULE: Final = Path(__file__).with_name("modules") / "inspect_ai.py.txt"


Assertion = dict[str, Any]

# What the module has a function for, with the options that the function reads.
_FUNCTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "match": ("location", "ignore_case", "numeric"),
    "exact": (),
    "pattern": ("pattern", "ignore_case", "match_all"),
    "answer": ("pattern",),
    "choice": (),
    "f1": ("stop_words",),
}
_JUDGED: Final = ("model_graded_qa", "model_graded_fact")
_PROVIDERS: Final = ("openai", "anthropic")
_OTHER_JUDGE: Final = (
    "model_graded_qa and model_graded_fact: the judge answers evalcore's prompt with a score, "
    "which passes from 0.8 on"
)
_ONLY_SCORES: Final = "f1 measures and decides nothing: here it passes at any score"
_NUMBERS: Final = "match(numeric=True): decimal numbers are compared; ½, ² and 十 are no numbers"


class Scorers:
    """The scorers of a task; `judges` are the targets that they ask.

    `grader` is the model of the role `grader`, which scorers ask that name none themselves.
    """

    def __init__(self, scorers: Sequence[Any], notes: Notes, grader: Any = None) -> None:
        self._grader = _model_name(grader)
        self._scorers = [
            (str(each["name"]).rpartition("/")[2], _mapping(each.get("options")))
            for each in scorers
            if isinstance(each, Mapping) and each.get("name")
        ]
        self.needs_suite = any(name in _FUNCTIONS for name, _ in self._scorers)
        self._notes = notes
        self._note(notes)

    def _note(self, notes: Notes) -> None:
        for name, options in self._scorers:
            if name in _JUDGED:
                notes.add(_OTHER_JUDGE)
                if options.get("template") or options.get("instructions"):
                    notes.add(f"{name}: its template and instructions are not taken over")
            elif name == "f1":
                notes.add(_ONLY_SCORES)
            elif name == "match" and options.get("numeric"):
                notes.add(_NUMBERS)
            elif name not in _FUNCTIONS and name != "includes":
                notes.add(f"the scorer {name}: a program of your own, or without a counterpart")

    @property
    def judges(self) -> list[Mapping[str, Any]]:
        """The judge, if a scorer asks a model: the one that it names, if it can be a target."""
        for name, options in self._scorers:
            if name in _JUDGED:
                name_of_model = _model_name(options.get("model")) or self._grader
                provider, _, model = name_of_model.partition("/")
                if provider in _PROVIDERS and model:
                    return [{"name": "judge", "provider": provider, "model": model}]
                if name_of_model:
                    self._notes.add(f"the model that grades, {name_of_model}, is left out")
                return default_judge(self._notes)
        return []

    def assertions(self, target: Sequence[str]) -> list[Assertion]:
        """Return the assertions of a sample, any of whose targets is right."""
        assertions = (self._assertion(name, options, target) for name, options in self._scorers)
        return list(filter(None, assertions))

    def _assertion(
        self, name: str, options: Mapping[str, Any], target: Sequence[str]
    ) -> Assertion | None:
        if name == "includes":
            return _includes(options, target)
        if name in _JUDGED:
            criteria = "The answer satisfies: " + " or: ".join(target)
            criteria = as_criteria(criteria) if target else "The answer is right."
            if self.needs_suite:
                return {"type": "llm_judge", "name": name, "criteria": criteria}
            return {"type": "llm-grader", "name": name, "prompt": criteria}
        if name not in _FUNCTIONS:
            return None
        read_options = {
            key: options[key] for key in _FUNCTIONS[name] if options.get(key) is not None
        }
        config = {"targets": list(target), **read_options}
        called = {"type": "python", "callable": f"{MODULE}:{name}", "name": name, "config": config}
        return called | ({"threshold": 0} if name == "f1" else {})


def _includes(options: Mapping[str, Any], target: Sequence[str]) -> Assertion | None:
    prefix = "i" if options.get("ignore_case", True) else ""
    if not target:
        return None
    if len(target) == 1:
        return {"type": f"{prefix}contains", "name": "includes", "value": target[0]}
    return {"type": f"{prefix}contains-any", "name": "includes", "value": list(target)}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _model_name(model: Any) -> str:
    return str(model.get("model") or "") if isinstance(model, Mapping) else str(model or "")


_ATTACHMENT: Final = "attachment://"
_UNUSED: Final = ("sandbox", "files", "setup", "checkpoint")
_FIELDS: Final = {"input", "target", "choices", "id", "metadata", *_UNUSED}
_ASSUMED: Final = (
    "a dataset does not say how answers are scored: an answer has to contain the target, in any "
    "case of letters, like the scorer includes(); --check equals or --check judge compare else"
)
_CHOICES: Final = (
    "samples with choices: the question is written out with lettered choices, in words of our own, "
    "and the last 'ANSWER: LETTER' of the answer counts"
)


def convert(file: ForeignFile, _source: str, options: ImportOptions, notes: Notes) -> Converted:
    """Return the suite of a log or of a dataset; raise `LoadError` if it is neither."""
    if isinstance(file.value, Mapping) and "eval" in file.value:
        check_shape(file, file.value, InspectLog)
        return _log(file, notes)
    if not file.rows:
        raise_problem(file.name, None, "a dataset of Inspect AI is a list of samples")
    return _dataset(file, options, notes)


def _dataset(file: ForeignFile, options: ImportOptions, notes: Notes) -> Converted:
    has_choices = any(parsed_cell(row.get("choices")) for row in file.rows)
    if has_choices:
        notes.add(_CHOICES)
    elif options.check is None:
        notes.add(_ASSUMED)
    choice = Scorers([{"name": "choice"}], notes)
    others = [name for name in file.columns if name not in _FIELDS]
    if others:
        notes.add(f"no fields of a sample, kept as metadata: {', '.join(others)}")
    cases: dict[str, ConvertedCase] = {}
    for number, row in enumerate(file.rows, 1):
        position = f"sample {number}"
        target, choices = _target(parsed_cell(row.get("target"))), parsed_cell(row.get("choices"))
        question = _question(parsed_cell(row.get("input")), {}, notes, position)
        _note_unused(row, notes, position)
        if not target:
            notes.add("the sample is left out: it has no target to compare with", position)
        elif choices and not isinstance(choices, list):
            notes.add("the sample is left out: its choices are no list", position)
        elif question is not None:
            name = unique_id(id_text(row.get("id")) or f"sample-{number}", cases)
            checks = [expected_check(target[0], options.check or "contains", in_suite=has_choices)]
            if choices:
                question, checks = _with_choices(question, choices), choice.assertions(target)
            elif len(target) > 1 and options.check != "judge":
                checks = [{"type": "icontains-any", "value": list(target)}]
            unread = {
                key: parsed_cell(row[key]) for key in others if row.get(key) not in (None, "")
            }
            cases[name] = ConvertedCase(
                name,
                question,
                checks,
                expected_output=target[0] if len(target) == 1 else target,
                metadata={**unread, **metadata_of(row.get("metadata"))},
            )
    check_cases(file.name, cases, notes)
    judges = default_judge(notes) if options.check == "judge" else []
    return Converted(
        Format.SUITE if has_choices else Format.TEST_FILE,
        options.name,
        tuple(cases.values()),
        judges=judges,
        module=CHECKS_MODULE.read_text("utf-8") if has_choices else None,
    )


def _with_choices(question: Any, choices: Sequence[Any]) -> Any:
    """Return a question with its choices after A), B), …, of messages in the last one."""
    letters = [*string.ascii_uppercase, *map(str, range(1, len(choices)))][: len(choices)]
    lines = "\n".join(f"{letter}) {text}" for letter, text in zip(letters, choices, strict=True))
    request = f"Choose from {', '.join(letters)}. End with a line of the form 'ANSWER: LETTER'."
    if isinstance(question, list):
        last = question[-1]
        return [*question[:-1], {**last, "content": _with_choices(last["content"], choices)}]
    return f"{question}\n\n{lines}\n\n{request}"


def _log(file: ForeignFile, notes: Notes) -> Converted:
    log = file.value
    task, samples = log["eval"], log.get("samples") or []
    if not samples:
        raise_problem(file.name, None, "the log has no samples (written with --no-log-samples?)")
    grader = (task.get("model_roles") or {}).get("grader")
    scorers = Scorers(_scorers(log, samples), notes, grader)
    cases: dict[str, ConvertedCase] = {}
    for number, sample in enumerate(sorted(samples, key=_order), 1):
        position = f"sample {sample.get('id', number)}"
        case = _sample(sample, scorers, notes, position)
        if case is not None:
            name = unique_id(case.id, cases)
            cases[name] = replace(case, id=name)
    check_cases(file.name, cases, notes)
    model = str(task.get("model") or "")
    provider, _, model_name = model.partition("/")
    targets = []
    if provider in _PROVIDERS and model_name:
        targets.append({"name": model, "provider": provider, "model": model_name})
    return Converted(
        Format.SUITE if scorers.needs_suite else Format.TEST_FILE,
        str(task.get("task") or "log").rpartition("/")[2],
        tuple(cases.values()),
        description=f"Answers of {model}" if model else None,
        targets=targets,
        judges=scorers.judges,
        module=CHECKS_MODULE.read_text("utf-8") if scorers.needs_suite else None,
    )


def _order(sample: Mapping[str, Any]) -> tuple[int, int, str]:
    identity = sample.get("id")
    number = identity if isinstance(identity, int) else 0
    return int(sample.get("epoch") or 1), number, str(identity)


def _scorers(log: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the scorers of the task; of older logs, by the names in the samples."""
    listed = log["eval"].get("scorers") or ()
    flat = [each for entry in listed for each in (entry if isinstance(entry, list) else [entry])]
    names = dict.fromkeys(name for sample in samples for name in sample.get("scores") or ())
    return flat or [{"name": name} for name in names]


def _sample(
    sample: Mapping[str, Any], scorers: Scorers, notes: Notes, position: str
) -> ConvertedCase | None:
    attachments = sample.get("attachments") or {}
    _note_unused(sample, notes, position)
    first_messages = _first_messages(sample) or sample.get("input")
    question = _question(first_messages, attachments, notes, position)
    target = _target(_resolved(sample.get("target"), attachments))
    assertions = scorers.assertions(target)
    if question is None or not assertions:
        if not assertions:
            notes.add("the sample is left out: no scorer has a counterpart", position)
        return None
    output = _answer(sample, attachments)
    if output is None:
        notes.add("the sample ended in an error: it has no answer, the target is asked", position)
    epoch = int(sample.get("epoch") or 1)
    if epoch > 1:
        notes.add("epochs after the first are cases of their own", position)
    scores = {
        name: score["value"]
        for name, score in (sample.get("scores") or {}).items()
        if isinstance(score, Mapping) and score.get("value") is not None
    }
    own = sample.get("metadata") or {}
    identity = str(sample.get("id"))
    return ConvertedCase(
        identity if epoch == 1 else f"{identity}-epoch-{epoch}",
        question,
        assertions,
        expected_output=target[0] if len(target) == 1 else target,
        output=output,
        metrics=_metrics(sample) if output is not None else {},
        metadata={**own, "scores": scores} if scores else own,
    )


def _first_messages(sample: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages before the first answer: what the solver made of the input."""
    messages = sample.get("messages") or []
    for number, message in enumerate(messages):
        if message.get("role") == "assistant" and message.get("source") != "input":
            return messages[:number] or None
    return None


def _question(value: Any, attachments: Any, notes: Notes, position: str) -> Any:
    """Return the input as a suite has it, None (and a note) if it is no text."""
    resolved = _resolved(value, attachments)
    if isinstance(resolved, list):
        messages = chat_messages(resolved)
        if messages is None:
            notes.add("the sample is left out: its input is more than text", position)
            return None
        # One question is written as its text.
        single = len(messages) == 1 and messages[0]["role"] == "user"
        return messages[0]["content"] if single else messages
    if resolved in (None, "", []):
        notes.add("the sample is left out: it has no input", position)
        return None
    return as_input(resolved)


def _resolved(value: Any, attachments: Mapping[str, str]) -> Any:
    """Return the value with references to attachments replaced by their texts."""
    return map_texts(
        value,
        lambda text: (
            attachments.get(text.removeprefix(_ATTACHMENT), text)
            if text.startswith(_ATTACHMENT)
            else text
        ),
    )


def _target(value: Any) -> list[str]:
    """Return the targets, any of which is right; numbers as their texts."""
    listed = value if isinstance(value, list) else [value]
    return [str(each) for each in listed if each not in (None, "")]


def _answer(sample: Mapping[str, Any], attachments: Any) -> str | None:
    output = _resolved(sample.get("output") or {}, attachments)
    choices = output.get("choices") or []
    if not choices:
        return None
    if isinstance(output.get("completion"), str):
        return str(output["completion"])
    content = (choices[0].get("message") or {}).get("content")
    if isinstance(content, str):
        return content
    return text_of_parts([part for part in content or () if part.get("type") == "text"])


def _metrics(sample: Mapping[str, Any]) -> dict[str, float]:
    usages = [usage for usage in (sample.get("model_usage") or {}).values() if usage]
    keys = ("input_tokens", "output_tokens") if usages else ()
    metrics: dict[str, float] = {
        key: sum(int(usage.get(key) or 0) for usage in usages) for key in keys
    }
    if isinstance(sample.get("total_time"), int | float):
        metrics["latency_ms"] = round(sample["total_time"] * 1000, 3)
    return metrics


def _note_unused(row: Mapping[str, Any], notes: Notes, position: str) -> None:
    for key in _UNUSED:
        if row.get(key):
            notes.add(f"{key}: write a workspace or hooks (docs/reference/workspaces.md)", position)
