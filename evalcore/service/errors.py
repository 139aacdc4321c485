"""What the service refuses: an HTTP status, and each mistake of a request with its place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fastapi import HTTPException
from sqlalchemy.exc import DBAPIError

from evalcore.errors import StoreError
from evalcore.service.db import DatabaseOutageError
from evalcore.service.models import ErrorBody, MistakesBody
from evalcore.shapes import fields_of, inner_shapes, member_of
from evalcore.wording import did_you_mean, shorten, suggest

# What is raised while the database or the object store does not answer.
OUTAGES: Final = (StoreError, DatabaseOutageError, ConnectionError, TimeoutError)

NEEDS_EXTRA: Final = "the MCP server needs the extra 'mcp': pip install 'evalcore-pipeline[mcp]'"
MOST_MISTAKES: Final = 100
_DETAIL_LENGTH: Final = 1000


class ServiceError(HTTPException):
    """A request that is refused: `status_code`, and what is wrong as the wire says it."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.status_code


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


def outage_detail(error: Exception) -> str:
    """Return what a request is told while the database or the object store does not answer."""
    part = "the object store" if isinstance(error, StoreError) else "the database"
    return f"{part} does not answer; try again"


def unstorable(error: DBAPIError) -> ServiceError:
    """Return the refusal of what PostgreSQL has no place for; raise any other error.

    Those are of the class 22 of SQLSTATE: the character NUL in a text.
    """
    if not str(getattr(error.orig, "sqlstate", None) or "").startswith("22"):
        raise error
    message = "a value of the request cannot be stored, such as a text with the character NUL"
    return mistake(["body"], message, "value_not_storable")


# Names of earlier interfaces, and the fields of today.
_LEGACY: Final[Mapping[str, str]] = {
    "assertions": "assertion",
    "inputs": "handle_inputs",
    "node_id": "block_id",
    "test_id": "eval_id",
}


def wire_mistakes(
    errors: Iterable[Mapping[str, Any]], shapes: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return mistakes as pydantic reports them for the wire.

    The first part of a place names a part of the request; the rest leads into its shape.
    """
    return [
        {
            "loc": [*map(_loc_part, error["loc"])],
            "msg": error["msg"] + _hint(error, shapes.get(str(error["loc"][0]))),
            "type": error["type"],
        }
        for error in errors
    ]


def _loc_part(part: Any) -> str | int:
    return part if isinstance(part, int) else str(part).encode("utf-8", "replace").decode()


def _hint(error: Mapping[str, Any], shape: Any) -> str:
    """Return ` Did you mean …?`, or the names that fit; empty for other mistakes."""
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return f".{_key_hint(error['loc'][1:], shape)}"
        case "union_tag_invalid":
            tags = [tag.strip("'") for tag in str(context["expected_tags"]).split(", ")]
            hint = did_you_mean(context.get("tag", ""), tags)
        case "literal_error" | "enum":
            choices = str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
            hint = did_you_mean(error.get("input"), choices)
        case "model_attributes_type" if isinstance(error.get("input"), bytes):
            hint = " Send JSON with 'Content-Type: application/json'."
        case _:
            return ""
    return f".{hint}" if hint else ""


def _key_hint(loc: Sequence[str | int], shape: Any) -> str:
    for part in loc[:-1]:
        shape = member_of(shape, part)
    key = _LEGACY.get(str(loc[-1]), str(loc[-1]))
    names = fields_of(shape)
    nested = key if key in names else _nested_field(shape, key)
    return f" Did you mean '{nested}'?" if nested else suggest(key, names)


def _nested_field(shape: Any, key: str) -> str | None:
    """Return the path of the nearest field of that name below the fields of a shape."""
    models: deque[tuple[tuple[str, ...], Any]] = deque([((), shape)])
    visited: set[Any] = set()
    while models:
        path, model = models.popleft()
        for name in fields_of(model):
            if name == key and path:
                return ".".join([*path, name])
            for inner in inner_shapes(member_of(model, name)):
                if inner not in visited:
                    visited.add(inner)
                    models.append(((*path, name), inner))
    return None


REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorBody, "description": "The request cannot be carried out as it is"},
    401: {"model": ErrorBody, "description": "No valid bearer token"},
    403: {"model": ErrorBody, "description": "The token's scope does not allow this"},
    404: {"model": ErrorBody, "description": "There is no such resource"},
    409: {"model": ErrorBody, "description": "The resource's state does not allow this"},
    413: {"model": ErrorBody, "description": "The body is too large"},
    422: {"model": MistakesBody, "description": "Mistakes, each with its place"},
    429: {"model": ErrorBody, "description": "Too many requests"},
    503: {"model": ErrorBody, "description": "The database or the object store is away"},
}
