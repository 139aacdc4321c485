"""What a request cannot have: an HTTP status and one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import HTTPException


class ServiceError(HTTPException):
    """A request that is refused: `status_code`, and what is wrong as the wire says it."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.status_code


def not_found(kind: str, identifier: str) -> ServiceError:
    """Return the refusal of an id that the caller's project does not have."""
    return ServiceError(404, f"{kind} '{identifier[:80]}' does not exist")


def mistake(loc: Sequence[str | int], message: str, kind: str = "value_error") -> ServiceError:
    """Return the refusal of a request with one mistake at a place of it."""
    return ServiceError(422, [{"loc": list(loc), "msg": message, "type": kind}])
