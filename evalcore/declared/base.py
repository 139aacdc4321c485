"""The base of every class that a file can write: its keys, its validation, its mistakes.

A class declares its fields, their defaults and their bounds; the JSON Schema, the stored form and
the tables of `docs/` are derived from it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict


def camel_case(name: str) -> str:
    """Return `node_id` as `nodeId`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _either_case(name: str) -> str | AliasChoices:
    """Return both spellings of a key, snake_case first: mistakes and schemas use that one."""
    camel = camel_case(name)
    return name if camel == name else AliasChoices(name, camel)


class Declared(BaseModel):
    """Something that a file can write.

    Strict: text is no number, unknown keys and infinite numbers are mistakes. A key of several
    words may be written in snake_case or camelCase. Validators are built when first used; read
    values through `evalcore.shapes.adapter`, which skips pydantic's search for
    plug-ins.
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


def fields_cell(shape: type[BaseModel], without: Collection[str] = ()) -> str:
    """Return the keys of a class as a cell of a Markdown table, with the defaults that say much."""
    cells = []
    for name, field in shape.model_fields.items():
        key = field.alias or name
        if key in without:
            continue
        default = field.default
        has_default = isinstance(default, str | int | float) and default not in ("", False)
        cells.append(f"`{key}`" + (f" ({default})" if has_default else ""))
    return ", ".join(cells) or "–"


def summary(shape: type[object]) -> str:
    """Return the first paragraph of the class's docstring on one line: its row in a table."""
    return " ".join((shape.__doc__ or "").split("\n\n")[0].split())
