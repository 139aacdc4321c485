"""A label as it is stored, and the names of its objects."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NamedTuple
from unicodedata import normalize

import orjson
from pydantic import Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.errors import UsageError
from evalcore.model.annotation import Label
from evalcore.storage.layout import NameKey, annotations_prefix, suite_key
from evalcore.wording import quote

LONGEST_COMMENT: Final = 10_000
_LONGEST_ANNOTATOR: Final = 200
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_OBJECT: Final = re.compile(r"annotations/([^/]+)/([0-9a-f]{64})/([^/]+)-([1-9]\d{0,8})\.json")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class LabelRecord:
    """One label of one annotator. `at` is ISO 8601 in UTC; `seconds` is how long it took.

    `label` is None where the annotator withdraws what they said before. `number` counts the
    records of an annotator on one content from 1; the highest one counts.
    """

    annotator: str
    label: Label | None
    at: str
    comment: str | None = None
    seconds: float | None = None
    number: int = 1

    @property
    def annotator_key(self) -> NameKey:
        """What tells annotators apart: names that differ in case, or in Unicode's form, are one.

        Earlier versions stored names in the form in which they were spelled.
        """
        return suite_key(_composed(self.annotator))


class LabelAddress(NamedTuple):
    """Where a record stands: the suite's and the annotator's names as key parts."""

    suite: NameKey
    content: str
    annotator: NameKey
    number: int

    @property
    def key(self) -> str:
        """The object's key."""
        return f"{content_prefix(self.suite, self.content)}{self.annotator}-{self.number}.json"


def content_prefix(suite: NameKey, content: str) -> str:
    """Return what the keys of the labels of one content start with."""
    if _KEY.fullmatch(content) is None:
        raise UsageError(f"{quote(content)} is no key of a content: 64 hex digits")
    return f"{annotations_prefix(suite)}{content}/"


def parse_label_key(key: str) -> LabelAddress | None:
    """Return what the key of a label says; None for any other key."""
    match = _OBJECT.fullmatch(key)
    if match is None:
        return None
    return LabelAddress(NameKey(match[1]), match[2], NameKey(match[3]), int(match[4]))


def _composed(name: str) -> str:
    return normalize("NFC", name)


def check_annotator(name: str) -> str:
    """Return the name of an annotator without outer blanks; raise `UsageError`.

    In Unicode's composed form: keyboards and files spell the same `é` in two ways.
    """
    stripped = _composed(name.strip())
    if not stripped or len(stripped) > _LONGEST_ANNOTATOR or _CONTROL.search(stripped):
        raise UsageError(
            f"{quote(name)} cannot be the name of an annotator: 1 to {_LONGEST_ANNOTATOR} "
            "characters on one line, such as ann or ann@example.org"
        )
    return stripped


@with_config({"extra": "allow", "strict": True, "defer_build": True})
class _StoredLabel(TypedDict):
    label: str | int | None
    comment: str | None
    annotator: Annotated[str, Field(min_length=1)]
    at: str
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None


_STORED: Final[TypeAdapter[Any]] = TypeAdapter(_StoredLabel)


def encode_label(record: LabelRecord) -> bytes:
    """Return the object of a record: one line of JSON."""
    fields = {
        "label": record.label,
        "comment": record.comment,
        "annotator": record.annotator,
        "at": record.at,
        "seconds": record.seconds,
    }
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def decode_label(data: bytes, address: LabelAddress) -> LabelRecord:
    """Return the record of an object; raise `ValueError` with what is wrong with it."""
    try:
        fields = _STORED.validate_python(orjson.loads(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"{field}: {first['msg']}" if field else first["msg"]) from error
    names = ("annotator", "label", "at", "comment", "seconds")
    record = LabelRecord(**{name: fields[name] for name in names})
    if suite_key(record.annotator) != address.annotator:
        raise ValueError(f"is the label of {quote(record.annotator)}, not of '{address.annotator}'")
    return replace(record, number=address.number)
