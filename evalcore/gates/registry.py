"""How a gate is written: in a file, on the command line, in a stored plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from evalcore.errors import UsageError
from evalcore.gates import table
from evalcore.gates.gate import Gate
from evalcore.model.run import GateSpec
from evalcore.shapes import (
    ParameterError,
    adapter,
    documented,
    model_of,
    parameters_of,
    read_declared,
    restore,
    snake_case,
    value_of_text,
)
from evalcore.wording import suggest

GATES: Final[Mapping[str, type[Gate]]] = MappingProxyType(
    {name: row for name, row in sorted(vars(table).items()) if getattr(row, "gate", "") == name}
)


def parse_gate(raw: object) -> GateSpec:
    """Return the gate that `raw` writes: `name`, or `{gate: name, parameter: value, …}`.

    Names and parameters may be in camelCase. Raises `ParameterError`.
    """
    if isinstance(raw, str):
        raw = {"gate": raw}
    if not isinstance(raw, Mapping) or not isinstance(raw.get("gate"), str):
        raise ParameterError("a gate is a name or a mapping with 'gate: NAME'")
    kind = _kind(raw["gate"])
    label = f"gate '{kind.gate}'"
    written = {key: value for key, value in raw.items() if key != "gate"}
    spec = read_declared(kind, written, label).spec
    if (name := spec.params.get("name")) in GATES:
        raise ParameterError(f"{label}: '{name}' is the name of another gate")
    return spec


def restore_gate(spec: GateSpec) -> Gate:
    """Return a gate of a policy."""
    return restore(GATES[spec.gate], spec.params)


def parse_gate_option(text: str) -> GateSpec:
    """Return the gate of `--gate NAME`, `--gate NAME=VALUE` or `--gate NAME:key=value,…`.

    In a list of ids the commas stay: `required_cases=a,b`. Raises `ParameterError`.
    """
    name, separator, rest = [*re.split("([=:])", text, maxsplit=1), "", ""][:3]
    name = name.strip()
    kind = _kind(name)
    parameters = parameters_of(kind)
    required = [key for key, each in parameters.items() if each.is_required()]
    first = next(iter([*required, *parameters]), "")
    raw: dict[str, Any] = {"gate": name}
    if separator == "=":
        if not first:
            raise ParameterError(f"gate '{name}' takes no value")
        raw[first] = value_of_text(rest, parameters[first])
    elif separator == ":":
        for key, value in _pairs(name, rest, first, kind):
            raw[key] = value_of_text(value, parameters.get(snake_case(key)))
    written = set(map(snake_case, raw)) - {"gate"}
    missing = [key for key in required if key not in written]
    # A misspelt key is the mistake, not what it leaves missing.
    if missing and written <= parameters.keys():
        keys = ", ".join(f"'{key}'" for key in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise ParameterError(f"gate '{name}': {keys} {verb} required: {_option_form(name, kind)}")
    return parse_gate(raw)


def parse_gate_options(texts: Iterable[str], option: str) -> tuple[GateSpec, ...]:
    """Return the gates of an option that may be repeated; raise `UsageError` that names it."""
    try:
        return tuple(map(parse_gate_option, texts))
    except ParameterError as error:
        raise UsageError(f"{option}: {error}") from error


def option_forms() -> str:
    """Return how each gate is written on the command line, for the help of `--gate`."""
    return ", ".join(_option_form(name, kind) for name, kind in GATES.items())


def _option_form(name: str, kind: type[Gate]) -> str:
    """Return the shortest form on the command line: `NAME=VALUE` for one required parameter."""
    separator = ":" if "=" in kind.example else "="
    return f"{name}{separator}{kind.example}" if kind.example else name


def gate_schema() -> dict[str, Any]:
    """Return the JSON Schema of a gate in a file: a name, or a mapping; also in camelCase."""
    names = [spelling for name in GATES for spelling in _spellings(name)]
    return {"anyOf": [{"enum": names}, *map(_mapping_schema, GATES.values())]}


def _mapping_schema(kind: type[Gate]) -> dict[str, Any]:
    schema = adapter(model_of(kind)).json_schema()
    properties: dict[str, Any] = {"gate": {"enum": _spellings(kind.gate)}}
    for key, field in schema.get("properties", {}).items():
        properties |= dict.fromkeys(_spellings(key), field)
    return {
        "type": "object",
        "description": documented(kind),
        "properties": properties,
        "required": ["gate", *(key for key in schema.get("required", ()) if "_" not in key)],
        "additionalProperties": False,
    }


def _spellings(name: str) -> list[str]:
    """Return a name in snake_case and in camelCase."""
    return list(dict.fromkeys((name, re.sub("_([a-z])", lambda hump: hump[1].upper(), name))))


def _kind(name: str) -> type[Gate]:
    kind = GATES.get(snake_case(name))
    if kind is None:
        raise ParameterError(f"unknown gate '{name}'.{suggest(snake_case(name), GATES)}")
    return kind


def _pairs(name: str, text: str, first: str, kind: type[Gate]) -> list[tuple[str, str]]:
    """Return the pairs of `key=value,key=value`; a part without `=` goes on with a value."""
    pairs: list[tuple[str, str]] = []
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if separator:
            pairs.append((key.strip(), value))
        elif pairs:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{part}")
        else:
            forms = f"{name}:{first or 'key'}=value, or {name}=value"
            if "=" in kind.example:
                forms = _option_form(name, kind)
            raise ParameterError(f"gate '{name}': write {forms}")
    return pairs
