"""Logs and datasets of Inspect AI → suites: logs with their answers, datasets with questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from evalcore.conversion.converted import Converted, ConvertedCase, Notes, unique_id
from evalcore.conversion.expected_checks import (
    as_input,
    chat_messages,
    default_judge,
    expected_check,
    text_of_parts,
)
from evalcore.conversion.exported_rows import id_text, metadata_of, parsed_cell
from evalcore.conversion.foreign_file import ForeignFile
from evalcore.conversion.foreign_shapes import InspectLog, check_shape
from evalcore.conversion.inspect_module import MODULE_TEXT
from evalcore.conversion.inspect_scorers import Scorers
from evalcore.conversion.registry import ImportOptions
from evalcore.formats.text.documents import raise_problem
from evalcore.model.suite import Format

_ATTACHMENT: Final = "attachment://"
_PROVIDERS: Final = ("openai", "anthropic")
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


def convert_inspect(file: ForeignFile, options: ImportOptions, notes: Notes) -> Converted:
    """Return the suite of a log or of a dataset; raise `LoadError` if it is neither."""
    if isinstance(file.value, Mapping) and "eval" in file.value:
        check_shape(file, file.value, InspectLog)
        return _log(file, notes)
    if not file.rows:
        raise_problem(file.name, None, "a dataset of Inspect AI is a list of samples")
    return _dataset(file, options, notes)


def _dataset(file: ForeignFile, options: ImportOptions, notes: Notes) -> Converted:
    with_choices = any(parsed_cell(row.get("choices")) for row in file.rows)
    if with_choices:
        notes.add(_CHOICES)
    elif options.check is None:
        notes.add(_ASSUMED)
    others = [name for name in file.columns if name not in _FIELDS]
    if others:
        notes.add(f"no fields of a sample, kept as metadata: {', '.join(others)}")
    in_suite = with_choices
    scorers = Scorers([{"name": "choice"}], notes)
    cases: dict[str, ConvertedCase] = {}
    for number, row in enumerate(file.rows, 1):
        position = f"sample {number}"
        target, choices = _target(parsed_cell(row.get("target"))), parsed_cell(row.get("choices"))
        question = _question(parsed_cell(row.get("input")), {}, notes, position)
        _note_unused(row, notes, position)
        if question is None:
            continue
        if not target:
            notes.add("the sample is left out: it has no target to compare with", position)
            continue
        if choices and not isinstance(choices, list):
            notes.add("the sample is left out: its choices are no list", position)
            continue
        if choices:
            question, assertions = _with_choices(question, choices), scorers.assertions(target)
        else:
            assertions = [_dataset_check(target, options.check, in_suite=in_suite)]
        name = unique_id(id_text(row.get("id")) or f"sample-{number}", cases)
        cases[name] = ConvertedCase(
            name,
            question,
            assertions,
            expected_output=target[0] if len(target) == 1 else target,
            metadata=_metadata(row, others),
        )
    _check_cases(file, cases, notes)
    return Converted(
        Format.SUITE if in_suite else Format.TEST_FILE,
        options.name,
        tuple(cases.values()),
        judges=default_judge(notes) if options.check == "judge" else [],
        module=MODULE_TEXT if with_choices else None,
    )


def _metadata(row: Mapping[str, Any], others: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of a sample, with the columns that are no fields of one."""
    unread = {name: parsed_cell(row[name]) for name in others if row.get(name) not in (None, "")}
    return {**unread, **metadata_of(row.get("metadata"))}


def _dataset_check(target: Sequence[str], check: str | None, *, in_suite: bool) -> dict[str, Any]:
    if len(target) == 1 or check == "judge":
        return expected_check(target[0], check or "contains", in_suite=in_suite)
    return {"type": "icontains-any", "value": list(target)}


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
    _check_cases(file, cases, notes)
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
        module=MODULE_TEXT if scorers.needs_suite else None,
    )


def _check_cases(file: ForeignFile, cases: Mapping[str, ConvertedCase], notes: Notes) -> None:
    if not cases:
        raise_problem(file.name, None, f"nothing is left of it: {'; '.join(notes.lines)}")


def _order(sample: Mapping[str, Any]) -> tuple[int, int, str]:
    identity = sample.get("id")
    number = identity if isinstance(identity, int) else 0
    return int(sample.get("epoch") or 1), number, str(identity)


def _scorers(log: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the scorers of the task; of older logs, those of the results or of the samples."""
    scores = (log.get("results") or {}).get("scores") or []
    of_results = {
        score["scorer"]: {"name": score["scorer"], "options": score.get("params")}
        for score in scores
        if isinstance(score, Mapping) and isinstance(score.get("scorer"), str)
    }
    listed = log["eval"].get("scorers") or list(of_results.values())
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
    first_messages: list[Any] = []
    for message in messages:
        if message.get("role") == "assistant" and message.get("source") != "input":
            return first_messages if first_messages else None
        first_messages.append(message)
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


def _resolved(value: Any, attachments: Any) -> Any:
    """Return the value with references to attachments replaced by their texts."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, list):
        return [_resolved(member, attachments) for member in value]
    if isinstance(value, Mapping):
        return {key: _resolved(member, attachments) for key, member in value.items()}
    return value


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
    return message_text((choices[0].get("message") or {}).get("content"))


def message_text(content: Any) -> str | None:
    """Return a message's content as text: its text parts, without reasoning."""
    if isinstance(content, str):
        return content
    parts = [part for part in content or () if part.get("type") == "text"]
    return text_of_parts(parts)


def _metrics(sample: Mapping[str, Any]) -> dict[str, float]:
    usages = [usage for usage in (sample.get("model_usage") or {}).values() if usage]
    metrics: dict[str, float] = {}
    for key in ("input_tokens", "output_tokens"):
        if usages:
            metrics[key] = sum(int(usage.get(key) or 0) for usage in usages)
    if isinstance(sample.get("total_time"), int | float):
        metrics["latency_ms"] = round(sample["total_time"] * 1000, 3)
    return metrics


def _with_choices(question: Any, choices: Sequence[Any]) -> Any:
    letters = list(_letters(len(choices)))
    lines = "\n".join(f"{letter}) {text}" for letter, text in zip(letters, choices, strict=True))
    request = f"Choose from {', '.join(letters)}. End with a line of the form 'ANSWER: LETTER'."
    if isinstance(question, list):
        last = question[-1]
        return [*question[:-1], {**last, "content": f"{last['content']}\n\n{lines}\n\n{request}"}]
    return f"{question}\n\n{lines}\n\n{request}"


def _letters(count: int) -> Iterator[str]:
    for number in range(count):
        yield chr(ord("A") + number) if number < 26 else str(number - 25)


def _note_unused(row: Mapping[str, Any], notes: Notes, position: str) -> None:
    for key in _UNUSED:
        if row.get(key):
            notes.add(f"{key}: write a workspace or hooks (docs/reference/workspaces.md)", position)
