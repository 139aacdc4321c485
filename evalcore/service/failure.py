"""What a request cannot have: an HTTP status and one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fastapi import HTTPException

from evalcore.errors import StoreError
from evalcore.service.database.outages import DatabaseOutageError
from evalcore.wording import shorten

# What is raised while the database or the object store does not answer.
OUTAGES: Final = (StoreError, DatabaseOutageError, ConnectionError, TimeoutError)

MOST_MISTAKES: Final = 100
_DETAIL_LENGTH: Final = 1000


class ServiceError(HTTPException):
    """A request that is refused: `status_code`, and what is wrong as the wire says it."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.status_code


def not_found(kind: str, identifier: str) -> ServiceError:
    """Return the refusal of an id that the caller's project does not have."""
    return ServiceError(404, f"{kind} '{identifier[:80]}' does not exist")


def lacking(kind: str, identifier: str, part: str, part_id: str) -> ServiceError:
    """Return the refusal of a part that a resource of the caller's project does not have."""
    return ServiceError(404, f"{kind} '{identifier[:80]}' has no {part} '{part_id[:80]}'")


def mistake(loc: Sequence[str | int], message: str, kind: str = "value_error") -> ServiceError:
    """Return the refusal of a request with one mistake at a place of it."""
    return ServiceError(422, [{"loc": list(loc), "msg": message, "type": kind}])


def bounded_detail(detail: Any) -> Any:
    """Return what is wrong with a request without repeating the request: texts are shortened.

    At most `MOST_MISTAKES` mistakes are listed.
    """
    if isinstance(detail, str):
        return shorten(detail, _DETAIL_LENGTH)
    if isinstance(detail, list):
        return [bounded_detail(member) for member in detail[:MOST_MISTAKES]]
    if isinstance(detail, dict):
        return {name: bounded_detail(member) for name, member in detail.items()}
    return detail


def refuse_nul(value: Any, loc: Sequence[str | int]) -> None:
    """Raise `ServiceError` 422 for the character NUL in a text: PostgreSQL stores none."""
    for at, text in _texts(value, loc):
        if "\0" in text:
            raise mistake(at, "the character NUL (U+0000) is not allowed")


def _texts(value: Any, loc: Sequence[str | int]) -> Iterator[tuple[Sequence[str | int], str]]:
    if isinstance(value, str):
        yield loc, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield loc, key
            yield from _texts(member, [*loc, key])
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _texts(member, [*loc, index])
