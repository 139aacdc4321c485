"""What a judge is shown of an item: a text for each variable of its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evalcore.checks.file_diff import unified_diff
from evalcore.checks.subject import Subject
from evalcore.judging.prompts import conversation_text, expected_text, json_text, variables_of
from evalcore.judging.rubrics import DEFAULT_PROMPT
from evalcore.model.evidence import Evidence
from evalcore.trust.attachments import with_file_texts

# Of what a built-in prompt shows beside the output; a prompt that names it gets all of it.
_MOST_UNASKED: Final = 64 * 1024


class UnknownVariableError(ValueError):
    """A prompt has a variable that has no value for this item."""


def material_of(
    subject: Subject, prompt: str | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the texts of the prompt's variables and of those that a judge always sees.

    Attached files stand in them with their text. The metadata, tool calls and changes of files are
    there for a built-in prompt (None, or one that begins with the built-in text) and for one that
    names them. Raise `UnknownVariableError` for one without a value. `more` are texts of the
    assertion's own.
    """
    case, folder = subject.case, subject.context.folder
    texts = {
        "input": conversation_text(with_file_texts(case.input, folder)),
        "output": subject.output,
        "expected_output": expected_text(with_file_texts(case.expected_output, folder)),
        "criteria": case.criteria or "",
        **(more or {}),
    }
    if prompt is None or prompt.startswith(DEFAULT_PROMPT):
        if case.metadata:
            texts["metadata"] = json_text(dict(case.metadata))
        texts["tool_calls"] = _up_to_the_limit(_calls_text(subject))
        texts["file_changes"] = _up_to_the_limit(unified_diff(subject.evidence) or "")
    for name in () if prompt is None else variables_of(prompt):
        if name not in texts:
            texts[name] = _value(name, subject, texts)
    return texts


def _value(name: str, subject: Subject, texts: Mapping[str, str]) -> str:
    if name in {"metadata", "metadata_json"}:
        return json_text(dict(subject.case.metadata))
    if name.startswith("metadata."):
        return _metadata(name, subject.case.metadata)
    if name in {"input_text", "question"}:
        return texts["input"]
    if name in {"output_text", "answer", "candidate_answer"}:
        return texts["output"]
    if name in {"expected_output_text", "reference_answer"}:
        return texts["expected_output"]
    if name == "tool_calls":
        return _calls_text(subject)
    if name == "file_changes":
        return unified_diff(subject.evidence) or ""
    raise UnknownVariableError(f"the prompt has a variable {{{{{name}}}}} that has no value here")


def _calls_text(subject: Subject) -> str:
    return "\n".join(json_text(dict(call)) for call in tool_calls_of(subject.evidence))


def _up_to_the_limit(text: str) -> str:
    """Return a text that no prompt asked for, cut where it is longer than a shown file."""
    if len(text) <= _MOST_UNASKED:
        return text
    return f"{text[:_MOST_UNASKED]}\n[cut: the first {_MOST_UNASKED} of {len(text)} characters]"


def _metadata(name: str, metadata: Mapping[str, Any]) -> str:
    value: Any = metadata
    for part in name.split(".")[1:]:
        if not isinstance(value, Mapping) or part not in value:
            raise UnknownVariableError(f"the prompt asks for {{{{{name}}}}}, which the case lacks")
        value = value[part]
    return value if isinstance(value, str) else json_text(value)


def tool_calls_of(evidence: Evidence) -> Sequence[Mapping[str, Any]]:
    """Return the tool calls of the conversation, in their order."""
    return [
        call
        for message in evidence.details.get("messages") or ()
        if isinstance(message, Mapping)
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping)
    ]
