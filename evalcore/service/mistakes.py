"""The mistakes of a request on the wire, each with its place, and with a hint where one helps."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from evalcore.shapes import fields_of, inner_shapes, member_of
from evalcore.wording import did_you_mean, known_names, suggest

# Names of earlier interfaces, and the fields of today.
_LEGACY: Final[Mapping[str, str]] = {
    "assertions": "assertion",
    "inputs": "handle_inputs",
    "node_id": "block_id",
    "test_id": "eval_id",
}


def wire_mistakes(errors: Iterable[Mapping[str, Any]], shape: Any) -> list[dict[str, Any]]:
    """Return mistakes as pydantic reports them for the wire.

    The first part of a place names a part of the request; the rest leads into `shape`.
    """
    return [
        {
            "loc": [*map(_loc_part, error["loc"])],
            "msg": error["msg"] + _hint(error, shape),
            "type": error["type"],
        }
        for error in errors
    ]


def unknown_parameter(name: str, parameters: Collection[str]) -> dict[str, Any]:
    """Return the mistake of a query parameter that a route does not have."""
    hint = did_you_mean(_LEGACY.get(name, name), sorted(parameters)) + f" {known_names(parameters)}"
    return {
        "loc": ["query", _loc_part(name)],
        "msg": f"Extra inputs are not permitted.{hint}",
        "type": "extra_forbidden",
    }


def repeated_parameter(name: str) -> dict[str, Any]:
    """Return the mistake of a query parameter that has several values and takes one."""
    return {"loc": ["query", name], "msg": "stands more than once", "type": "repeated"}


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
