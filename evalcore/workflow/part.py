"""The base of everything that a workflow file can write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from evalcore.declared.base import Declared
from evalcore.model.evidence import NOTHING


class WorkflowPart(Declared, alias_generator=None):
    """A mapping in a workflow file; its keys are written in snake_case only.

    Null is the absence of a key that has a default. `synonyms` are other names of keys.
    """

    synonyms: ClassVar[Mapping[str, str]] = NOTHING

    @model_validator(mode="before")
    @classmethod
    def _read_synonyms(cls, written: Any) -> Any:
        if not isinstance(written, dict) or cls.synonyms.keys().isdisjoint(written):
            return written
        read = {key: value for key, value in written.items() if key not in cls.synonyms}
        for synonym, key in cls.synonyms.items():
            if synonym in written:
                read.setdefault(key, written[synonym])
        return read

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, written: Any) -> Any:
        if not isinstance(written, dict) or None not in written.values():
            return written
        absent = {key for key in cls._keys_with_default() if written.get(key, "") is None}
        return {key: value for key, value in written.items() if key not in absent}

    @classmethod
    def _keys_with_default(cls) -> list[str]:
        """Return the keys whose default is another value than null."""
        return [
            field.alias or name
            for name, field in cls.model_fields.items()
            if not field.is_required() and field.get_default() is not None
        ]

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema in which keys with a default may be null."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for key in cls._keys_with_default():
            if key in properties:
                properties[key] = {"anyOf": [properties[key], {"type": "null"}]}
        for synonym, key in cls.synonyms.items():
            if key in properties:
                properties[synonym] = properties[key]
        return schema
