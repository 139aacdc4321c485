"""Turn what pydantic finds wrong into problems: where it stands, what is wrong, what would work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from evalcore.errors import LoadError, Problem
from evalcore.formats.source import MAX_PROBLEMS, Loc, Locate

if TYPE_CHECKING:
    from pydantic import ValidationError


class Problems:
    """Collects the mistakes of one load; at most `MAX_PROBLEMS` are kept, all are counted."""

    def __init__(self, file: str, locate: Locate, *, cheap: bool = False) -> None:
        """Take the function that finds lines; `cheap` says that calling it costs nothing."""
        self.file = file
        self.locate = locate
        self.cheap = cheap
        self.found: list[Problem] = []
        self.count = 0

    def add(self, loc: Loc, message: str, *, label: str = "") -> None:
        """Note a mistake at a path of the document; `label` is put before the message."""
        self.count += 1
        if self.count <= MAX_PROBLEMS:
            text = f"{label}: {message}" if label else message
            self.found.append(Problem(self.file, self.locate(loc), path_text(loc), text))

    def add_invalid(
        self, error: ValidationError, value: Any, shape: Any, prefix: Loc = (), *, label: str = ""
    ) -> None:
        """Note everything that pydantic found in `value`, of `shape`, which stands at `prefix`."""
        for found in error.errors(include_url=False):
            loc = _real_path(found["loc"], value)
            known = known_keys(shape, found["loc"]) if found["type"] == "extra_forbidden" else ()
            self.add((*prefix, *loc), _message(found, known), label=label)

    def raise_if_any(self) -> None:
        """Raise `LoadError` with every mistake, in the order of the file's lines."""
        raise_all((self,))


def raise_all(collectors: Sequence[Problems]) -> None:
    """Raise `LoadError` with the mistakes of several files, at most `MAX_PROBLEMS` of them."""
    found = [
        problem
        for collector in collectors
        for problem in sorted(collector.found, key=lambda problem: problem.line or 0)
    ]
    if not found:
        return
    count = sum(collector.count for collector in collectors)
    shown = found[:MAX_PROBLEMS]
    if count > len(shown):
        more = f"and {count - len(shown)} more mistakes"
        shown.append(Problem(collectors[0].file, None, "", more))
    raise LoadError(tuple(shown))


def path_text(loc: Loc) -> str:
    """Return `tests[3].assertions[0].type` for a path."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def suggest(word: object, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest known word, or the list of known words."""
    names = sorted({str(name) for name in known})
    near = get_close_matches(str(word).lower(), names, n=1, cutoff=0.6)
    if near:
        return f" Did you mean '{near[0]}'?"
    return f" Known: {', '.join(names)}." if names else ""


def _real_path(loc: Sequence[str | int], value: Any) -> Loc:
    """Drop the names of union members, which pydantic puts into a path."""
    path: list[str | int] = []
    node = value
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(node, Mapping):
            if part in node:
                node = node[part]
            elif not last or part == node.get("type") or str(part).startswith("<"):
                continue
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        elif isinstance(part, str):
            continue
        path.append(part)
    return tuple(path)


def known_keys(shape: Any, loc: Sequence[str | int]) -> tuple[str, ...]:
    """Return the keys that a TypedDict allows where the unknown key at `loc` stands.

    `loc` is pydantic's own path, with the names of union members in it.
    """
    from evalcore.formats.shapes import fields_of, member_of

    for part in loc[:-1]:
        shape = member_of(shape, part)
    return fields_of(shape)


_NAMES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "none_required": "null",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "typed_dict_type": "a mapping",
    "dataclass_type": "a mapping",
}


def _message(found: Mapping[str, Any], known: Iterable[str]) -> str:
    """Return one pydantic error in our words."""
    kind, value, context = found["type"], found.get("input"), found.get("ctx", {})
    field = found["loc"][-1] if found["loc"] else ""
    if kind in _NAMES:
        return f"expected {_NAMES[kind]}, got {describe(value)}{_quote_hint(kind, value)}"
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return f"unknown key '{field}'." + suggest(field, known)
    if kind == "union_tag_invalid":
        known = [name.strip("'") for name in str(context["expected_tags"]).split(", ")]
        return f"unknown {_unquote(context['discriminator'])} '{context['tag']}'." + suggest(
            context["tag"], known
        )
    if kind == "union_tag_not_found":
        return f"{_unquote(context['discriminator'])} is required"
    if kind in {"literal_error", "enum"}:
        expected = str(context["expected"]).replace(" or ", ", ").replace("'", "")
        return f"unknown value {describe(value)}." + suggest(value, expected.split(", "))
    if kind in {"string_too_short", "too_short", "dict_too_short"}:
        return "must not be empty"
    if kind in {"value_error", "assertion_error"}:
        return str(context.get("error", found["msg"]))
    message = str(found["msg"]).removeprefix("Input should be ")
    return f"expected {message}, got {describe(value)}"


def _unquote(name: object) -> str:
    return str(name).strip("'")


def _quote_hint(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return "; write it in quotes"
    return ""


def describe(value: object) -> str:
    """Return a short text for a foreign value: `the number 3`, `a list`, `null`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"'{value[:40]}…'" if len(value) > 40 else f"'{value}'"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return type(value).__name__
