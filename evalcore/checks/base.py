"""The base of every check: declared fields, and a method that gives the verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import (
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    Required,
    Self,
    dataclass_transform,
    get_type_hints,
)

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from evalcore.checks.scale import Bounds, Scale
from evalcore.checks.subject import Subject
from evalcore.declared.types import or_null
from evalcore.mistakes.foreign_text import LINE_LENGTH, json_text, shorten
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.shape_lookup import adapter
from evalcore.model.assertion import Assertion, Verdict

STRICT: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class AssertionValueError(ValueError):
    """An assertion has the right shape and is still wrong; the message says what would work.

    `loc` is the path of the mistake within the assertion.
    """

    def __init__(self, message: str, *loc: str | int) -> None:
        super().__init__(message)
        self.loc = loc


class Fault(NamedTuple):
    """What is wrong with a stored field, known without an output: a mistake, or only a warning.

    `path` begins with the field's name.
    """

    path: Loc
    message: str
    is_warning: bool = False


class Reader(Protocol):
    """What a function that reads an assertion may ask of the loader.

    Every method raises `AssertionValueError` with a path below the assertion.
    """

    @property
    def file_rules(self) -> int:
        """The rules by which the suite's file is read (`model.suite.FILE_RULES`)."""

    def parse_json(self, text: str, *loc: str | int) -> Any:
        """Return the value of a JSON text; NaN, infinities and duplicate keys are refused."""

    def validate(self, shape: Any, value: Any, *loc: str | int) -> Any:
        """Return the value, which stands at `loc`, as pydantic validates it."""

    def judges(self, written: Mapping[str, Any], *loc: str | int) -> list[dict[str, Any]]:
        """Return who judges by `judge`, `judges`, `model`, …, as `checks.judge.Judge` takes it."""

    def inline_judge(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the judge that a mapping `{provider, model, …}` describes."""

    def embedding(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return who embeds: the target that is named, or one called `embeddings`."""

    def prompt(self, written: str | None) -> str | None:
        """Return the text of a prompt, from its file if it names one."""

    def compare_fields(self, fields: Mapping[str, bool]) -> None:
        """Note fields that are compared with those of the expected output."""

    def installed_version(self, packages: Iterable[str]) -> str | None:
        """Return the version of the first of these npm packages that is installed for the suite."""

    def use_judges(self, names: Iterable[str], *loc: str | int) -> None:
        """Take these targets as judges, and the suite's; note names that no target has."""

    def use_models(self) -> tuple[str, ...]:
        """Take every model of the suite's targets that can be used, and return their names."""

    def members(self, raw: Sequence[Any], *loc: str | int) -> list[Assertion]:
        """Return the assertions of a list at `loc`; those that are wrong are noted."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Check:
    """A check on the evidence. Its fields are what the plan stores of it as `Assertion.params`.

    A subclass is a frozen dataclass whose annotations pydantic validates; it is no pydantic model,
    because a run makes ten million checks and a model's attributes are read at a third of the
    speed. `expected_field` names the field that a report shows as what the output should have been.
    Fields in `omitted` are not stored while they have their default. `others_in` names the field, a
    mapping, that takes the keys of an assertion that its type does not know. The fields of a
    `nested` class are validated when they are read from a plan; those of any other are JSON values
    and are taken as they are. `measure_scale` is what the check compares with its bounds, if any.
    A check that is `of_text` looks at nothing but the output and the context.
    """

    expected_field: ClassVar[str] = "value"
    omitted: ClassVar[frozenset[str]] = frozenset()
    nested: ClassVar[bool] = False
    others_in: ClassVar[str | None] = None
    measure_scale: ClassVar[Scale | None] = None
    of_text: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Make the subclass a frozen dataclass."""
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Return the check of these fields, as `Assertion.params` has them.

        A nested class raises pydantic's `ValidationError` for fields that do not fit, and
        `ValueError` for fields that do not fit together.
        """
        if cls.nested:
            shape = stored_shape(cls)  # type: ignore[arg-type]  # a class is hashable
            values = adapter(shape).validate_python(stored)
            return cls(**values)
        check = _new(cls)
        # The defaults are attributes of the class.
        _set_fields(check, stored)
        return check

    def check(self, subject: Subject) -> Verdict | Awaitable[Verdict]:
        """Return the verdict, or what it is awaited from."""
        raise NotImplementedError

    @classmethod
    def accepted(cls, stored: Mapping[str, Any]) -> Bounds | None:
        """Return the measures on `measure_scale` that pass; None if no bounds alone decide."""
        return (
            None
            if cls.measure_scale is None
            else cls.measure_scale.accepted(stored.get("threshold"))
        )

    @classmethod
    def required_score(cls, _written: Mapping[str, Any]) -> float | None:
        """Return the score below which the item fails, of a type with a key `required` of its own.

        What is written has the shape of the type.
        """
        return None

    @classmethod
    def idle_keys(cls, _written: Mapping[str, Any]) -> Iterable[tuple[Loc, str]]:
        """Return what an assertion of a test file says without effect: paths, and the reasons.

        What is written has the shape of the type.
        """
        return ()

    def faults(self) -> Iterable[Fault]:
        """Return why the check cannot be made of any output, and what of it has no effect."""
        return ()

    def expected_text(self) -> str | None:
        """Return what the check asks for as a short text; None if it has no such value."""
        value = getattr(self, self.expected_field, None)
        if type(value) is str:
            return value if len(value) <= LINE_LENGTH else shorten(value)
        if value is not None or (self.expected_field == "value" and "value" in self.__dict__):
            return shorten(json_text(value))
        threshold = getattr(self, "threshold", None)
        return None if threshold is None else f"≤ {threshold}"


_new: Final = object.__new__
_set_fields: Final = Check.__dict__["__dict__"].__set__


def defaults(check: type[Any]) -> dict[str, Any]:
    """Return the defaults of those fields that have one."""
    return {
        each.name: each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(check)
        if each.default is not MISSING or each.default_factory is not MISSING
    }


@cache
def stored_shape(check: type[Any]) -> Any:
    """Return the shape of the stored form: a TypedDict of the check's fields."""
    optional, types = defaults(check), get_type_hints(check, include_extras=True)
    keys = {
        each.name: or_null(types[each.name])
        if each.name in optional
        else Required[types[each.name]]
        for each in fields(check)
    }
    return with_config(STRICT)(TypedDict(check.__name__, keys, total=False))  # type: ignore[operator]
