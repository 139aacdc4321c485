"""The base of every class that a file can write: its keys, its validation, its mistakes.

A class declares its fields, their defaults and their bounds; the JSON Schema, the stored form and
the tables of `docs/` are derived from it.
"""

from __future__ import annotations

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
