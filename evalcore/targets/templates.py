"""Placeholders in the texts of a target's options, and in shell commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple

from evalcore.errors import TargetError
from evalcore.jsonvalues import texts_in
from evalcore.targets.work import (
    Message,
    Work,
    input_messages,
    json_text,
    prompt_of,
    with_attachments,
)
from evalcore.wording import Loc, did_you_mean

PLACEHOLDER: Final = re.compile(r"\{(prompt|id|input(?:\.[^{}\s]+)?)\}")

_NAMES: Final = ("prompt", "input", "id")
_QUESTION: Final = ("prompt", "input")
_SINGLE: Final = re.compile(rf"(?<!\{{){PLACEHOLDER.pattern}")
# As a placeholder is written. After these characters braces are another language's: `${x}`,
# `%{http_code}`, `x_{i}`, `\\boxed{x}`.
_WRITTEN: Final = re.compile(r"(?<![\w$%#^)\\])\{([^\W\d][\w.-]*)\}")
# A program as an argument: its braces are its own.
_PROGRAM: Final = re.compile(r"(?:^|\s)(?:-[a-z]*[ce]|--eval)(?=\s|$)|\bawk\b|\bjq\b")


class TemplateFault(NamedTuple):
    """What is wrong with the text of the option at `path`, or only worth a warning."""

    path: Loc
    message: str
    is_warning: bool = False


def template_faults(kind: str, options: Mapping[str, Any]) -> Iterator[TemplateFault]:
    """Yield what is wrong with the placeholders in the options of a target of this kind."""
    if isinstance(options.get("prompt_template"), str):
        yield from _faults(options, [("prompt_template",)], _NAMES, _QUESTION)
    if kind == "http":
        texts = [("url",), ("headers",), ("body",)]
        yield from _faults(options, texts, _NAMES, _QUESTION)
    elif kind == "command":
        yield from _faults(options, [("command",)], _OF_COMMANDS)
    elif kind == "cli":
        yield from _faults(options, [("files_format",)], ("path", "basename"))
    system = options.get("system_prompt")
    if isinstance(system, str) and (placeholder := _SINGLE.search(system)):
        message = f"{placeholder[0]} is not replaced in `system_prompt`; use `prompt_template`"
        yield TemplateFault(("system_prompt",), message, is_warning=True)


_OF_COMMANDS: Final = ("prompt", "prompt_file", "messages_file", "output_file", "id")


def _faults(
    options: Mapping[str, Any],
    paths: Sequence[Loc],
    names: Sequence[str],
    question: Sequence[str] = (),
) -> Iterator[TemplateFault]:
    written: set[str] = set()
    is_program = False
    for path, text in chain.from_iterable(
        texts_in(options.get(str(path[0])), path) for path in paths
    ):
        is_program = is_program or (path[0] == "command" and bool(_PROGRAM.search(text)))
        for match in () if is_program else _WRITTEN.finditer(text):
            name = match[1].partition(".")[0] if "input" in names else match[1]
            if name in names and name in ("input", match[1]):
                continue
            listed = ", ".join(f"{{{each}}}" for each in names)
            hint = did_you_mean(name, names)
            # Two braces are another language's: importers keep what is not filled in.
            is_double = text[: match.start()].endswith("{")
            mark = f"{{{match[0]}}}" if is_double else match[0]
            yield TemplateFault(
                path,
                f"unknown placeholder {mark}.{hint} Known: {listed}; other braces stand as they "
                f"are with spaces in them, as in {{ {match[1]} }}",
                is_warning=is_double,
            )
        written.update(match[1].partition(".")[0] for match in PLACEHOLDER.finditer(text))
    if question and written.isdisjoint(question):
        names_of = " or ".join(f"`{path[0]}`" for path in paths if options.get(str(path[0])))
        message = f"the question is not in {names_of}: write {{prompt}}, {{input}} or {{input.x}}"
        yield TemplateFault(paths[0], message, is_warning=True)


def filled(template: str, work: Work) -> str:
    """Return the text with every placeholder replaced; what is not text is put in as JSON.

    Other braces stay. Raise `TargetError` for a part of the input that is not there.
    """
    return PLACEHOLDER.sub(lambda match: _as_text(value_of(match[1], work)), template)


def filled_value(template: Any, work: Work) -> Any:
    """Return JSON values with every text in them filled.

    A text that is one placeholder and nothing else becomes the value itself, of any type.
    """
    if isinstance(template, str):
        whole = PLACEHOLDER.fullmatch(template)
        return filled(template, work) if whole is None else value_of(whole[1], work)
    if isinstance(template, Mapping):
        return {key: filled_value(value, work) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [filled_value(value, work) for value in template]
    return template


def with_template(work: Work, template: str | None) -> Work:
    """Return the work with what `templated` returns as its messages and its prompt."""
    if template is None:
        return work
    messages = templated(work, template)
    return replace(work, messages=messages, prompt=prompt_of(messages))


def templated(work: Work, template: str | None) -> tuple[Message, ...]:
    """Return the case's messages, the last user message replaced by the filled template.

    A template that is one placeholder and nothing else, and stands for messages, becomes those.
    """
    if template is None:
        return work.messages
    value = filled_value(template, with_attachments(work))
    if isinstance(value, list | tuple):
        return input_messages(value, any_value=True)
    message = {"role": "user", "content": _as_text(value)}
    for position in range(len(work.messages) - 1, -1, -1):
        if work.messages[position]["role"] == "user":
            return (*work.messages[:position], message, *work.messages[position + 1 :])
    return (*work.messages, message)


def value_of(placeholder: str, work: Work) -> Any:
    """Return what a placeholder, written without its braces, stands for."""
    if placeholder == "prompt":
        return work.prompt
    if placeholder == "id":
        return work.case.id
    value = work.case.input
    for part in placeholder.split(".")[1:]:
        value = _part(value, part, placeholder)
    return value


def _part(value: Any, part: str, placeholder: str) -> Any:
    if isinstance(value, Mapping) and part in value:
        return value[part]
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    if listed and part.isdecimal() and int(part) < len(value):
        return value[int(part)]
    keys = f"; it has {', '.join(map(str, value))}" if isinstance(value, Mapping) else ""
    raise TargetError("input", f"{{{placeholder}}}: the case's input has no '{part}'{keys}")


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


# What stands for a placeholder, by its name and the quote around it ("" if there is none).
Reference = Callable[[str, str], str]

_REFERENCES = {"": '"${%s}"', '"': "${%s}", "'": "'\"${%s}\"'"}


def variable_reference(variable: str, quote: str) -> str:
    """Return what a shell reads as the value of the variable, inside of that quote."""
    return _REFERENCES[quote] % variable


def shell_command(text: str, placeholder: re.Pattern[str], reference: Reference) -> str:
    """Return the command with a reference to a variable in the place of each placeholder.

    What a variable holds is never read as shell code, wherever it stands; a quoted value would be,
    where the placeholder already stands in quotes, backticks or a here-document.
    """
    parts: list[str] = []
    quote = ""
    at = 0
    while at < len(text):
        match = placeholder.match(text, at)
        if match is not None:
            parts.append(reference(match[1], quote))
            at = match.end()
            continue
        step = 2 if text[at] == "\\" and quote != "'" else 1
        if text[at] in "'\"" and quote in ("", text[at]):
            quote = "" if quote else text[at]
        parts.append(text[at : at + step])
        at += step
    return "".join(parts)
