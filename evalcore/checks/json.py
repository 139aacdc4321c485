"""Checks on the output as JSON: whether it is, whether it holds some, what its fields say."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NoReturn

import orjson
from pydantic import Field, field_validator

from evalcore.checks.base import (
    Check,
    Fault,
    Reader,
    Subject,
    aspect,
    by_aspects,
    passing_score,
    scored,
)
from evalcore.jsonvalues import ABSENT, compile_json_path, same_json, value_at
from evalcore.judging.prompts import content_text
from evalcore.model.assertion import PASSED, Outcome, Verdict, broken, failed
from evalcore.model.scoring import reaches
from evalcore.patterns import PatternError, compile_pattern
from evalcore.shapes import Declared, Share, Text, Weight
from evalcore.wording import Loc, describe_error, json_text, one_line, quote, value_text

if TYPE_CHECKING:
    from jsonpath import CompoundJSONPath, JSONPath
    from jsonschema.protocols import Validator


_CONTAINER_START = re.compile(r"[\[{]")


class NotJsonError(ValueError):
    """The text is not JSON."""


def parse(text: str) -> Any:
    """Return the value of a JSON text; raise `NotJsonError` if it is none.

    A number beyond the largest float is infinity. Raises `RecursionError` where the text is nested
    more deeply than Python's parser can go.
    """
    try:
        return _DECODER.decode(text)
    except NotJsonError:
        raise
    except ValueError as error:  # also an integer of more digits than Python reads
        raise NotJsonError(f"is not JSON: {error}") from None


def first_container(text: str) -> Any:
    """Return the first JSON object or array in the text, by position; else `NotJsonError`.

    Raises `RecursionError` as `parse` does.
    """
    for start in _CONTAINER_START.finditer(text):
        with suppress(ValueError):
            return _DECODER.raw_decode(text, start.start())[0]
    raise NotJsonError("contains no JSON object or array")


def _refuse_constant(name: str) -> NoReturn:
    raise NotJsonError(f"is not JSON: {name} is not allowed")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


# Bounds one match of a pattern where no run says how long it may take.
SCHEMA_PATTERN_S: Final = 2.0


class SchemaProblem(ValueError):  # noqa: N818 - it is the schema's, not the value's
    """The schema is not valid, names another document, or cannot be applied to the value.

    `path` is where in the schema, () if that is not known.
    """

    def __init__(self, message: str, path: Loc = ()) -> None:
        super().__init__(message)
        self.path = path


def first_mistake(value: Any, schema: Any, regex_timeout_s: float) -> str | None:
    """Return the most telling mistake as one line (`$.path: message`); None if the value conforms.

    The draft is the one that `$schema` names, else 2020-12. Raises `SchemaProblem`; a `$ref` to
    another document is one, nothing is ever fetched.
    """
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    validator = _validator(json.dumps(schema), regex_timeout_s)
    try:
        mistake = best_match(validator.iter_errors(value))
        return None if mistake is None else one_line(f"{mistake.json_path}: {mistake.message}")
    except Unresolvable as error:
        raise SchemaProblem(_not_in_it(str(error.ref))) from None
    except PatternError as error:
        raise SchemaProblem(f"a pattern of the schema: {error}") from None
    except (ArithmeticError, TypeError, ValueError) as error:
        raise SchemaProblem(f"the schema cannot be applied: {describe_error(error)}") from None


def check_schema(schema: Any, regex_timeout_s: float) -> None:
    """Raise `SchemaProblem` if the schema itself is not valid."""
    _validator(json.dumps(schema), regex_timeout_s)


def schema_faults(schema: Any) -> list[Fault]:
    """Return what makes the schema none, with its places.

    That is an invalid schema, a pattern that is none, a `$ref` to what is not in it.
    """
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012, specification_with

    try:
        text = json.dumps(schema)
    except (TypeError, ValueError):  # of a suite in Python, which says what JSON cannot hold
        return []
    try:
        draft: Any = type(_validator(text, SCHEMA_PATTERN_S))
        specification = specification_with(draft.META_SCHEMA["$schema"], default=DRAFT202012)
        root = specification.create_resource(json.loads(text))
        resolver = Registry().resolver_with_root(root)
        contents = root.contents if isinstance(schema, dict) else {}
        return list(_faults_in(contents, (), specification, resolver))
    except SchemaProblem as problem:
        return [Fault(problem.path, str(problem))]
    except (RecursionError, ValueError) as error:  # an `$id` that is no address
        return [Fault((), f"the schema cannot be applied: {describe_error(error)}")]


_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def _faults_in(value: Any, path: Loc, specification: Any, resolver: Any) -> Iterator[Fault]:
    """Yield the patterns that are none and the references that lead nowhere."""
    from referencing.exceptions import Unresolvable

    members = value.items() if isinstance(value, dict) else enumerate(value)
    if isinstance(value, dict) and isinstance(value.get("$id"), str) and path:
        resolver = resolver.in_subresource(specification.create_resource(value))
    for key, member in members:
        place = (*path, key)
        texts = {place: member} if isinstance(member, str) and key == "pattern" else {}
        if isinstance(member, dict | list) and key not in _DATA:
            texts = {(*place, each): each for each in member if key == "patternProperties"}
            yield from _faults_in(member, place, specification, resolver)
        for at, expression in texts.items():
            try:
                compile_pattern(expression)
            except PatternError as error:
                yield Fault(at, f"a pattern of the schema: {error}")
        if isinstance(member, str) and key in _REFERENCES:
            try:
                resolver.lookup(member)
            except (Unresolvable, ValueError):
                yield Fault(place, _not_in_it(member))


def _not_in_it(ref: str) -> str:
    return f"the schema refers to {quote(ref)}, which is not in it; schemas are not fetched"


@lru_cache(maxsize=256)
def _validator(schema_text: str, regex_timeout_s: float) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, ValidationError
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    schema = json.loads(schema_text)
    if not isinstance(schema, dict | bool):
        raise SchemaProblem("a JSON Schema is an object, true or false")
    if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
        raise SchemaProblem("invalid JSON Schema: '$schema' is not text", ("$schema",))
    draft: Any = validator_for(schema, default=Draft202012Validator)
    try:
        draft.check_schema(schema)
    except SchemaError as error:
        message = one_line(f"invalid JSON Schema: {error.json_path}: {error.message}")
        raise SchemaProblem(message, tuple(error.absolute_path)) from None

    def pattern(_: Any, expression: str, value: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(value, str) and not compile_pattern(expression).is_found_in(
            value, regex_timeout_s
        ):
            yield ValidationError(f"{quote(value)} does not match {quote(expression)}")

    # jsonschema's own check of `pattern` cannot be interrupted.
    bounded: Any = extend(draft, {"pattern": pattern})  # type: ignore[no-untyped-call]
    validator: Validator = bounded(schema, registry=Registry())
    return validator


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
        """Parse the output; without a schema by orjson, which is quicker and takes less."""
        if self.schema is None:
            with suppress(ValueError):
                orjson.loads(subject.output)
                return PASSED
        return _conforms(parse, self.schema, subject)


class ContainsJson(_JsonSchemaCheck):
    """The first JSON object or array in the output is valid against `schema` (null: any is)."""

    def check(self, subject: Subject) -> Verdict:
        """Parse the first object or array."""
        return _conforms(first_container, self.schema, subject)


class EqualsJson(Check):
    """The output is JSON and means `value`: 1 is 1.0, true is not 1."""

    of_text: ClassVar[bool] = True

    value: Any

    def check(self, subject: Subject) -> Verdict:
        """Compare the values."""
        try:
            equal = same_json(parse(subject.output), self.value)
        except NotJsonError as error:
            return failed(str(error))
        except RecursionError:
            return broken(_TOO_DEEP)
        return PASSED if equal else failed("is another JSON value")


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


class TransformError(ValueError):
    """The transform gives no text; the message names it."""


def apply_transform(transform: str, output: str) -> str:
    """Return the first match of the JSONPath in the output, other values than text as JSON.

    Raises `TransformError` where the transform is unknown or malformed, where the output is not
    JSON, and where nothing matches.
    """
    from jsonpath.exceptions import JSONPathError

    path = compile_transform(transform)
    try:
        match = path.match(parse(output))
    except NotJsonError as error:
        raise TransformError(f"transform {quote(transform)}: the output {error}") from None
    except JSONPathError as error:
        raise _malformed(transform, error) from None
    except RecursionError:
        raise TransformError(f"transform {quote(transform)}: nested too deeply") from None
    if match is None:
        raise TransformError(f"transform {quote(transform)} matches nothing in the output")
    return value_text(match.value)


_JSON_PATH = "json_path:"


def compile_transform(transform: str) -> JSONPath | CompoundJSONPath:
    """Return the JSONPath that a transform names; raise `TransformError` if it names none."""
    from jsonpath.exceptions import JSONPathError

    if not transform.startswith(_JSON_PATH):
        raise TransformError(
            f"unknown transform {quote(transform)} (valid: json_path:<expression>)"
        )
    expression = transform.removeprefix(_JSON_PATH).strip()
    if not expression:
        raise TransformError(f"transform {quote(transform)} has no expression")
    try:
        return compile_json_path(expression)
    except JSONPathError as error:
        raise _malformed(transform, error) from None


def _malformed(transform: str, error: Exception) -> TransformError:
    reason = str(error).partition("\n")[0]  # the lines below draw the expression again
    return TransformError(f"malformed transform {quote(transform)}: {reason}")


_TOKENS: Final = {
    **{"YYYY": "%Y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "DD": "%d"},
    **{"HH": "%H", "mm": "%M", "ss": "%S", "YY": "%y", "Z": "%z"},
}
_ONE_READING: Final = (
    *("%Y-%m-%d", "%Y/%m/%d", "%d-%b-%Y", "%d-%B-%Y", "%d %b %Y", "%d %B %Y"),
    *("%B %d, %Y", "%b %d, %Y"),
)
_TWO_READINGS: Final = ("%m/%d/%Y", "%m-%d-%Y", "%d/%m/%Y", "%d-%m-%Y", "%d.%m.%Y")
_NUMERIC: Final = re.compile(r"(?:DD|MM|%d|%m)[-/.](?:DD|MM|%d|%m)")
_BLOCK: Final = re.compile(r"```(?:json)?[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)


class ComparedField(Declared):
    """One field that is compared with the same field of the expected output."""

    path: Text
    match: Literal["exact", "numeric_tolerance", "date"] = "exact"
    required: bool = True
    weight: Weight = 1.0
    tolerance: Weight = 0.0
    relative: bool = False
    formats: Annotated[list[Text] | None, Field(min_length=1)] = None

    @field_validator("match", mode="before")
    @classmethod
    def _with_underscore(cls, value: Any) -> Any:
        return "numeric_tolerance" if value == "numeric-tolerance" else value

    def compare(self, actual: Any, expected: Any) -> dict[str, Any] | None:
        """Return whether the field agrees; None for an optional one that is not there."""
        path, weight = self.path, self.weight
        value, reference = value_at(actual, path), value_at(expected, path)
        if value is ABSENT:
            return aspect(f"{path} is missing", False, weight) if self.required else None
        if self.match == "exact":
            holds = same_json(value, reference)
        elif self.match == "date":
            day = _day(value, self.formats)
            holds = day is not None and day == _day(reference, self.formats)
        else:
            holds = self._is_near(value, reference)
        if holds:
            return aspect(path, True, weight)
        text = f"{path} is {quote(json_text(value))}, expected {quote(json_text(reference))}"
        return aspect(text, False, weight)

    def _is_near(self, value: Any, reference: Any) -> bool:
        number, expected = _number(value), _number(reference)
        if number is None or expected is None:
            return False
        tolerance = self.tolerance
        if self.relative:
            tolerance *= abs(expected) if expected else 1.0
        return reaches(tolerance, abs(number - expected), max(1.0, abs(expected)))


class FieldAccuracy(Check):
    """The `fields` agree with the expected output's; the score is their weighted share.

    A field that this case's expected output lacks is skipped; a `required` one is an error if no
    case of the suite has it. An output that is no JSON object has no field right. If nothing is
    compared, or nothing that has weight, the score is 0 and the check fails, at any threshold and
    also with `negate`.
    """

    nested: ClassVar[bool] = True

    fields: Annotated[list[ComparedField], Field(min_length=1)]
    aggregation: Literal["weighted_average", "all_or_nothing"] = "weighted_average"
    threshold: Share | None = None

    def check(self, subject: Subject) -> Verdict:
        """Compare each field."""
        expected = expected_object(subject.case.expected_output)
        if not isinstance(expected, Mapping | list):
            return broken("there is nothing to compare with: 'expected_output' is no object")
        absent = {field.path for field in self.fields if value_at(expected, field.path) is ABSENT}
        nowhere = [
            field.path
            for field in self.fields
            if field.required and field.path in absent and subject.context.lacks_field(field.path)
        ]
        if nowhere:
            return broken(f"no test's 'expected_output' has {', '.join(map(quote, nowhere))}")
        present = [field for field in self.fields if field.path not in absent]
        # Before the output is read: one that is no JSON is no field wrong where none is compared.
        if not any(field.weight for field in present):
            return _uncompared(present)
        try:
            actual = _structured(subject.output)
        except NotJsonError as error:
            return scored(0.0, self.threshold, message=f"the output {error}")
        compared = [field.compare(actual, expected) for field in present]
        return self._verdict([entry for entry in compared if entry is not None])

    def _verdict(self, aspects: Sequence[dict[str, Any]]) -> Verdict:
        if not any(entry.get("weight", 1.0) for entry in aspects):
            return _uncompared(aspects)
        if self.aggregation == "all_or_nothing":
            score = float(all(entry["passed"] for entry in aspects))
            return scored(score, self.threshold, aspects)
        return by_aspects(aspects, self.threshold)

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `field-accuracy` means."""
        compared: Sequence[ComparedField] = written["fields"]
        reader.compare_fields({field.path: field.required for field in compared})
        fields: dict[str, Any] = {
            "fields": [
                {**field.model_dump(exclude_unset=True), "match": field.match} for field in compared
            ],
            "threshold": passing_score(written),
        }
        if "aggregation" in written:
            fields["aggregation"] = written["aggregation"]
        return "field-accuracy", fields


def _uncompared(compared: Sequence[object]) -> Verdict:
    """Return the verdict where nothing that has weight is `compared`: failed, also if negated."""
    reason = "nothing that has weight was compared" if compared else "nothing was compared"
    return Verdict(Outcome.FAILED, 0.0, reason, measured=False)


def expected_object(value: Any) -> Any:
    """Return the expected object: itself, of messages the last one's content, text as JSON."""
    messages = isinstance(value, list) and value and isinstance(value[-1], Mapping)
    if messages and "role" in value[-1] and "content" in value[-1]:
        value = content_text(value[-1]["content"])
    if isinstance(value, str):
        try:
            return _structured(value)
        except NotJsonError:
            return None
    return value


def _structured(text: str) -> Any:
    """Return the object that a text is, alone or in one code block; raise `NotJsonError`."""
    block = _BLOCK.fullmatch(text.strip())
    value = parse(text if block is None else block[1])
    if not isinstance(value, dict | list):
        raise NotJsonError("is JSON, but no object")
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = json.loads(value.strip())
        except (ValueError, RecursionError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _day(value: Any, formats: Sequence[str] | None) -> date | None:
    """Return the day that a text names: ISO 8601, or the first of the formats that fits.

    Forms that have one reading are known without being named. `05/06/2025` has the month first
    unless that cannot be, or the formats say which.
    """
    if not isinstance(value, str):
        return None
    text = " ".join(value.split())
    with suppress(ValueError):
        return datetime.fromisoformat(text).date()
    ordered = any(_NUMERIC.match(written) for written in formats or ())
    named = [_strptime(written) for written in formats or ()]
    for form in (*named, *_ONE_READING, *(() if ordered else _TWO_READINGS)):
        with suppress(ValueError):
            return datetime.strptime(text, form).date()
    return None


def _strptime(written: str) -> str:
    if "%" in written:
        return written
    return re.sub("|".join(_TOKENS), lambda match: _TOKENS[match[0]], written)
