"""What blocks know: values by name, paths into them, their text, and what they are declared as."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.jsonvalues import parse, storable
from evalcore.redaction.redactor import PROCESS
from evalcore.wording import QUOTED_LENGTH, shorten
from evalcore.workflow.events import BlockError

if TYPE_CHECKING:
    import jsonschema


class MissingValue:
    """Nothing stands there (null is something)."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = MissingValue()
_LONG_DIGITS: Final = re.compile(r"\d{19}")
_WHOLE: Final = ("output", "result")
_STEPS: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{([^\W\d][\w-]*(?:\.[\w-]+|\[\d+\])*)\}")


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
    try:
        # `parse` reads an integer of more than 64 bits as a floating-point number.
        read = json.loads(text) if _LONG_DIGITS.search(text) else parse(text)
        value_of_text = storable(read).value
        orjson.dumps(value_of_text)
    except (ValueError, TypeError, RecursionError):
        return value
    return value_of_text


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
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self.inputs = dict(inputs)
        self.outputs: dict[str, Any] = {}
        self.shared: dict[str, Any] = {}

    def find(self, path: str) -> Any:
        """Return what a reference (`block.path`, `workflow.x`) names, `MISSING` if nothing."""
        head, _, rest = path.partition(".")
        if head == "workflow":
            return at_path(self.inputs, rest) if rest else dict(self.inputs)
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

    return PLACEHOLDER.sub(replace, template)


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
    return [match[1] for match in PLACEHOLDER.finditer(template) if match[1]]


def sole_placeholder(template: str) -> str | None:
    """Return the name in a template that is one `{name}` and nothing else."""
    match = PLACEHOLDER.fullmatch(template.strip())
    return None if match is None else match[1]


_SCHEMA_KEYS: Final = frozenset({"properties", "$schema", "anyOf", "oneOf", "allOf", "$ref"})
_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string str text": str,
    "integer int": int,
    "number float": (int, float),
    "boolean bool": bool,
    "array list": list,
    "object dict mapping map": Mapping,
    "any json": object,
}
TYPE_NAMES: Final = {name: kind for names, kind in _KINDS.items() for name in names.split()}


def is_schema(declared: Mapping[str, Any]) -> bool:
    """Whether `outputs` is one JSON Schema of the whole output, not one entry per name."""
    return not _SCHEMA_KEYS.isdisjoint(declared)


def check_outputs(declared: Mapping[str, Any], value: Any) -> None:
    """Raise `BlockError` unless an output is what `outputs` declares: names with types, schemas."""
    output = parsed(value)
    if is_schema(declared):
        _check_schema(output, declared, "the output")
        return
    if not isinstance(output, Mapping):
        names = ", ".join(declared)
        raise BlockError("outputs", f"declares the outputs {names}, but gave no mapping")
    for name, expected in declared.items():
        if name not in output:
            has = ", ".join(map(str, output)) or "nothing"
            raise BlockError("outputs", f"declares the output '{name}', but gave: {has}")
        if isinstance(expected, Mapping):
            _check_schema(output[name], expected, f"output '{name}'")
            continue
        kind = TYPE_NAMES.get(str(expected).lower(), object)
        is_flag = isinstance(output[name], bool) and kind not in {bool, object}
        if is_flag or not isinstance(output[name], kind):
            actual = type(output[name]).__name__
            message = f"output '{name}' is declared as {expected}, but is {actual}"
            raise BlockError("outputs", message)


def _check_schema(value: Any, schema: Mapping[str, Any], what: str) -> None:
    import jsonschema

    try:
        jsonschema.validate(value, dict(schema))
    except jsonschema.SchemaError as error:
        raise BlockError("outputs", f"{what}: its schema is invalid: {error.message}") from error
    except jsonschema.ValidationError as error:
        path = ".".join(map(str, error.absolute_path))
        where = f"{what} at '{path}'" if path else what
        raise BlockError("outputs", f"{where}: {_reason(error)}", retryable=True) from error


def _reason(error: jsonschema.ValidationError) -> str:
    """Return what does not fit: the value shortened, and covered before it is cut."""
    message, instance = PROCESS.message(error.message), PROCESS.message(repr(error.instance))
    if message.startswith(instance):
        message = shorten(instance, QUOTED_LENGTH) + message[len(instance) :]
    return shorten(message, 300)
