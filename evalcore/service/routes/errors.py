"""The refusals that every operation may answer with, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from evalcore.service.wire.base import ErrorBody, MistakesBody

REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorBody, "description": "The request cannot be carried out as it is"},
    401: {"model": ErrorBody, "description": "No valid bearer token"},
    403: {"model": ErrorBody, "description": "The token's scope does not allow this"},
    404: {"model": ErrorBody, "description": "There is no such resource in this project"},
    409: {"model": ErrorBody, "description": "The resource's state does not allow this"},
    413: {"model": ErrorBody, "description": "The body is too large"},
    422: {"model": MistakesBody, "description": "Mistakes, each with its place"},
    429: {"model": ErrorBody, "description": "Too many requests"},
    503: {"model": ErrorBody, "description": "The database or the object store is away"},
}
