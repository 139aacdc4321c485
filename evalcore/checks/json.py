"""Checks on the output as JSON: whether it is, whether it holds some, what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from evalcore.checks import strict_json
from evalcore.checks.base import Check, Fault
from evalcore.checks.json_schema import SchemaProblem, check_schema, first_mistake, schema_faults
from evalcore.checks.strict_json import NotJsonError
from evalcore.checks.subject import Subject
from evalcore.model.assertion import PASSED, Verdict, broken, failed

_TOO_DEEP = "the JSON is nested too deeply to be read"


class _JsonSchemaCheck(Check):
    of_text: ClassVar[bool] = True
    expected_field: ClassVar[str] = "schema"

    schema: dict[str, Any] | bool | None = None

    def faults(self) -> Iterator[Fault]:
        """Yield what makes the schema none, and what of it has no effect."""
        if self.schema is not None:
            for each in schema_faults(self.schema):
                yield each._replace(path=("schema", *each.path))


class IsJson(_JsonSchemaCheck):
    """The output is one JSON text and, unless `schema` is null, valid against that JSON Schema."""

    def check(self, subject: Subject) -> Verdict:
        """Parse the output."""
        if self.schema is not None:
            return _conforms(strict_json.parse, self.schema, subject)
        try:
            return PASSED if strict_json.is_json(subject.output) else failed("is not JSON")
        except RecursionError:
            return broken(_TOO_DEEP)


class ContainsJson(_JsonSchemaCheck):
    """The first JSON object or array in the output is valid against `schema` (null: any is)."""

    def check(self, subject: Subject) -> Verdict:
        """Parse the first object or array."""
        return _conforms(strict_json.first_container, self.schema, subject)


class EqualsJson(Check):
    """The output is JSON and means `value`: 1 is 1.0, true is not 1."""

    of_text: ClassVar[bool] = True

    value: Any

    def check(self, subject: Subject) -> Verdict:
        """Compare the values."""
        try:
            equal = same_json(strict_json.parse(subject.output), self.value)
        except NotJsonError as error:
            return failed(str(error))
        except RecursionError:
            return broken(_TOO_DEEP)
        return PASSED if equal else failed("is another JSON value")


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()
_PART: Final = re.compile(r"[^.\[\]]+")


def same_json(left: Any, right: Any) -> bool:
    """Return whether two JSON values mean the same; objects have no order."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping):
        return (
            isinstance(right, Mapping)
            and left.keys() == right.keys()
            and all(same_json(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list | tuple):
        return (
            isinstance(right, list | tuple)
            and len(left) == len(right)
            and all(map(same_json, left, right))
        )
    return bool(left == right)


def value_at(value: Any, path: str) -> Any:
    """Return what stands at a path (`lines[0].price`, `lines.0.price`), `ABSENT` for nothing.

    A key that is written like the whole path comes first.
    """
    if isinstance(value, Mapping) and path in value:
        return value[path]
    for part in _PART.findall(path):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return ABSENT
    return value


def _conforms(read: Callable[[str], Any], schema: Any, subject: Subject) -> Verdict:
    regex_timeout_s = subject.context.regex_timeout_s
    try:
        # An output that is not JSON says nothing of a schema that is none.
        if schema is not None:
            check_schema(schema, regex_timeout_s)
        value = read(subject.output)
        if schema is None:
            return PASSED
        mistake = first_mistake(value, schema, regex_timeout_s)
    except NotJsonError as error:
        return failed(str(error))
    except SchemaProblem as error:
        return broken(str(error))
    except RecursionError:
        return broken(_TOO_DEEP)
    return PASSED if mistake is None else failed(mistake)
