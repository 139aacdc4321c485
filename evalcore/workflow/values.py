"""What blocks know: values by name, paths into them, and their text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from evalcore.jsonvalues import parse_storable
from evalcore.workflow.failure import BlockError


class MissingValue:
    """Nothing stands there (null is something)."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = MissingValue()
_LARGEST: Final = 2**64 - 1
_MOST_DIGITS: Final = 100
_LONG_DIGITS: Final = re.compile(r"\d{19}")
_WHOLE: Final = ("output", "result")
_STEPS: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{([^\W\d][\w-]*(?:\.[\w-]+|\[\d+\])*)\}")


def text_of(value: Any) -> str:
    """Return the text of a value: a text itself, JSON of anything else (characters unescaped)."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parsed(value: Any) -> Any:
    """Return the mapping or list that a text is the JSON of; anything else unchanged.

    So is JSON that cannot be stored: nested too deep, or with an integer of more than 64 bits.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text[:1] not in {"{", "["}:
        return value
    if has_large_integer(text):
        return value
    try:
        value_of_text = parse_storable(text)
        orjson.dumps(value_of_text)
    except (ValueError, TypeError):
        return value
    return value_of_text


def has_large_integer(text: str) -> bool:
    """Whether a text is JSON with an integer of more than 64 bits."""
    if _LONG_DIGITS.search(text) is None:
        return False
    try:
        json.loads(text, parse_int=_integer_of_64_bits)
    except LargeIntegerError:
        return True
    except (ValueError, RecursionError):
        pass
    return False


def _integer_of_64_bits(digits: str) -> int:
    # Python converts no more than 4300 digits.
    value = int(digits) if len(digits) <= _MOST_DIGITS else _LARGEST + 1
    if not -(2**63) <= value <= _LARGEST:
        raise LargeIntegerError
    return value


class LargeIntegerError(ValueError):
    """An integer has more than 64 bits."""


def at_path(value: Any, path: str) -> Any:
    """Return what stands at a dotted path (`a.0.b`, `a[0].b`), `MISSING` if nothing does.

    A text that is JSON is looked into.
    """
    if isinstance(value, Mapping) and path in value:
        return value[path]
    for index, key in _STEPS.findall(path):
        value = parsed(value)
        if isinstance(value, Mapping) and (key or index) in value:
            value = value[key or index]
        elif (
            isinstance(value, list) and (index or key).isdigit() and int(index or key) < len(value)
        ):
            value = value[int(index or key)]
        else:
            return MISSING
    return value


class WorkflowState:
    """The values of one workflow's execution.

    `inputs` are the workflow's; `outputs` hold the last value of each block that ran (and
    `block.exit` of exits); `shared` what the engine adds: errors, rounds, carried context.
    `chosen_exits` are those that souls delegated to, by block; `conversations` what stateful blocks
    and their souls said to each other.
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self.inputs = dict(inputs)
        self.outputs: dict[str, Any] = {}
        self.shared: dict[str, Any] = {}
        self.chosen_exits: dict[str, str] = {}
        self.conversations: dict[str, list[Mapping[str, Any]]] = {}

    def find(self, path: str) -> Any:
        """Return what a reference (`block.path`, `workflow.x`) names, `MISSING` if nothing."""
        head, _, rest = path.partition(".")
        if head in {"results", "outputs"} and rest and head not in self.outputs:
            return self._output(rest)
        if head == "workflow":
            rest = rest.removeprefix("inputs.") if "inputs" not in self.inputs else rest
            return at_path(self.inputs, rest) if rest else dict(self.inputs)
        if head in {"shared_memory", "metadata"} and rest and head not in self.outputs:
            return self._within(self.shared, rest)
        if head == "current_task" and head not in self.outputs:
            task = self.inputs.get(head, self.inputs.get("task", MISSING))
            return at_path(task, rest) if rest and task is not MISSING else task
        value = self._output(path)
        if value is MISSING:
            value = self._within(self.shared, path)
            # What a loop carries is empty in its first round.
            if value is MISSING and head.partition("[")[0] in self.shared:
                return None
        name, dot, rest = path.partition(".error")
        if value is MISSING and dot and f"__error__{name}" in self.shared:
            return at_path(self.shared[f"__error__{name}"], rest.removeprefix("."))
        return value

    def _output(self, path: str) -> Any:
        value = self._within(self.outputs, path)
        if value is not MISSING:
            return value
        # `block.output` is the whole of an output that has no parts.
        block, _, part = path.rpartition(".")
        text = self.outputs.get(block)
        is_whole = part in _WHOLE and isinstance(text, str) and parsed(text) is text
        return text if is_whole else MISSING

    def _within(self, values: Mapping[str, Any], path: str) -> Any:
        """Return what a path names; ids may hold dots, the longest one wins."""
        if path in values:
            return values[path]
        head = path
        while "." in head or "[" in head:
            head = head[: max(head.rfind("."), head.rfind("["))]
            if head in values:
                return at_path(values[head], path[len(head) :].removeprefix("."))
        return MISSING

    def everything(self) -> dict[str, Any]:
        """Return what a block without declared inputs sees: the outputs by block, the inputs."""
        return {**self.shared, **self.outputs, **self.inputs}

    def known_names(self) -> str:
        """Return the names that can be referred to, for a message."""
        names = [f"workflow.{name}" for name in self.inputs] + list(self.outputs)
        return f"known: {', '.join(names)}" if names else "nothing is known yet"


def fill(template: str, inputs: Mapping[str, Any], state: WorkflowState, *, where: str) -> str:
    """Return the template with its `{name}` placeholders replaced; `{{` and `}}` are braces.

    Names are looked for in the block's inputs, then the workflow's, then the outputs of blocks;
    `name.path` looks into a value. Raise `BlockError` that names a placeholder without a value.
    Braces around anything else than a name stay as they are.
    """

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        return "" if (value := lookup(name, inputs, state, where)) is None else text_of(value)

    return _PLACEHOLDER.sub(replace, template)


def lookup(name: str, inputs: Mapping[str, Any], state: WorkflowState, where: str) -> Any:
    """Return what a placeholder stands for; raise `BlockError` if nothing does."""
    for value in (at_path(inputs, name), at_path(state.inputs, name), state.find(name)):
        if value is not MISSING:
            return value
    names = ", ".join([*inputs, *state.inputs, *state.outputs]) or "nothing"
    message = f"{where}: unknown placeholder {{{name}}}; known: {names}"
    raise BlockError("template", f"{message} (a literal brace is written {{{{ or }}}})")


def placeholders(template: str) -> list[str]:
    """Return the names in the `{name}` placeholders of a template."""
    return [match[1] for match in _PLACEHOLDER.finditer(template) if match[1]]


def has_placeholder(template: str) -> bool:
    """Whether the template has a `{name}`."""
    return bool(placeholders(template))


def sole_placeholder(template: str) -> str | None:
    """Return the name in a template that is one `{name}` and nothing else."""
    match = _PLACEHOLDER.fullmatch(template.strip())
    return None if match is None else match[1]
