"""The base of every check: declared fields, and a method that gives the verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar, Self

from evalcore.checks.subject import Subject
from evalcore.checks.wording import KEPT_LENGTH, json_text, shorten
from evalcore.declared.base import Declared
from evalcore.mistakes.shape_lookup import adapter
from evalcore.model.assertion import Verdict


class Check(Declared):
    """A check on the evidence. Its fields are what the plan stores of it as `Assertion.params`.

    `expected_field` names the field that a report shows as what the output should have been.
    Fields in `omitted` are not stored while they have their default. Values of a `nested` class
    are validated when they are read from a plan; those of any other are JSON values and are taken
    as they are, because a run makes ten million of them.
    """

    expected_field: ClassVar[str] = "value"
    omitted: ClassVar[frozenset[str]] = frozenset()
    nested: ClassVar[bool] = False
    _defaults: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Keep the defaults at hand: an instance is made of them and of stored fields."""
        super().__pydantic_init_subclass__(**options)
        cls._defaults = {
            name: field.get_default(call_default_factory=True, validated_data={})
            for name, field in cls.model_fields.items()
            if not field.is_required()
        }

    @classmethod
    def from_stored(cls, fields: Mapping[str, Any]) -> Self:
        """Return the check whose `stored` form is `fields`.

        A nested class raises pydantic's `ValidationError` for fields that do not fit.
        """
        if cls.nested:
            validated: Self = adapter(cls).validate_python(fields)
            return validated
        check = cls.__new__(cls)
        object.__setattr__(check, "__dict__", {**cls._defaults, **fields})
        return check

    def stored(self) -> dict[str, Any]:
        """Return the fields as JSON values, those in `omitted` only if they differ."""
        fields = self.model_dump(mode="json", by_alias=True)
        for name in self.omitted:
            if fields.get(name) == self._defaults[name]:
                fields.pop(name, None)
        return fields

    def check(self, subject: Subject) -> Verdict | Awaitable[Verdict]:
        """Return the verdict, or what it is awaited from."""
        raise NotImplementedError

    def expected(self) -> str | None:
        """Return what the check asks for as a short text; None if it has no such value."""
        fields = self.__dict__
        if self.expected_field in fields:
            value = fields[self.expected_field]
            if type(value) is str:
                return value if len(value) <= KEPT_LENGTH else shorten(value)
            if value is not None or self.expected_field == "value":
                return shorten(json_text(value))
        threshold = fields.get("threshold")
        return None if threshold is None else f"≤ {threshold}"
