"""The base of every class that a file can write: its keys, its validation, its mistakes.

A class declares its fields, their defaults and their bounds; the JSON Schema, the stored form and
the tables of `docs/` are derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, ValidationError

from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import adapter


def camel_case(name: str) -> str:
    """Return `node_id` as `nodeId`."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _either_case(name: str) -> str | AliasChoices:
    """Return both spellings of a key, snake_case first: mistakes and schemas use that one."""
    camel = camel_case(name)
    return name if camel == name else AliasChoices(name, camel)


class Declared(BaseModel):
    """Something that a file can write.

    Strict: text is no number, unknown keys and infinite numbers are mistakes. A key of several
    words may be written in snake_case or camelCase. Validators are built when first used; read
    values through `read_declared` or `evalcore.mistakes.shape_lookup.adapter`, which skip
    pydantic's search for plug-ins.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,
        alias_generator=AliasGenerator(validation_alias=_either_case),
    )

    def stored(self) -> dict[str, Any]:
        """Return the fields as JSON values, under their own names: what a plan keeps."""
        return self.model_dump(mode="json")


D = TypeVar("D", bound=Declared)


def read_declared(
    shape: type[D],
    value: Any,
    loc: Loc,
    problems: Problems,
    *,
    label: str = "",
    context: Any = None,
) -> D | None:
    """Return `value`, which stands at `loc`, as an instance of `shape`.

    Adds every mistake to `problems`, with its place, and returns None if there is one. `context`
    is handed to the validators of the class.
    """
    try:
        declared: D = adapter(shape).validate_python(value, context=context)
    except ValidationError as error:
        problems.add_invalid(error, value, shape, loc, label=label)
        return None
    return declared


def stored_form(shape: type[D], fields: Mapping[str, Any]) -> D:
    """Return the instance whose `stored()` is `fields`; raises pydantic's `ValidationError`."""
    declared: D = adapter(shape).validate_python(fields)
    return declared


def field_names(shape: type[Declared]) -> tuple[str, ...]:
    """Return the keys that the class takes, in their order."""
    return tuple(shape.model_fields)


def summary(shape: type[object]) -> str:
    """Return the first paragraph of the class's docstring on one line: its row in a table."""
    return " ".join((shape.__doc__ or "").split("\n\n")[0].split())
