"""The line of any path into a YAML or JSON text, found by reading it a second time.

JSON has a reader of its own here: YAML refuses tabs, surrogate pairs and long keys, which JSON may
have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import yaml

Loc = tuple[str | int, ...]
Locate = Callable[[Loc], int | None]

_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


def yaml_locator(text: str, loader: Any) -> Locate:
    """Return a function from a path to its line (from 1); the text is read at the first call.

    Of a path that does not exist it gives the line of the deepest part that does; None if the text
    is not valid.
    """
    composed: list[yaml.Node | None] = []

    def locate(loc: Loc) -> int | None:
        if not composed:
            try:
                composed.append(yaml.compose(text, Loader=loader))
            except yaml.YAMLError:
                composed.append(None)
        return None if composed[0] is None else _line_in_yaml(composed[0], loc)

    return locate


def _line_in_yaml(node: yaml.Node, loc: Loc) -> int:
    line = node.start_mark.line
    for part in loc:
        child: yaml.Node | None = None
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            child = node.value[part] if part < len(node.value) else None
            line = child.start_mark.line if child else line
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                    child, line = value, key.start_mark.line
        if child is None:
            break
        node = child
    return int(line) + 1


class _Place:
    """A JSON value: its line (that of its key, if it has one) and its members."""

    __slots__ = ("key", "key_line", "line", "mapping", "members")

    def __init__(self, line: int, *, mapping: bool = False) -> None:
        self.line = self.key_line = line
        self.members: dict[str | int, _Place] = {}
        self.mapping = mapping
        # The key of the member that comes next: None where a mapping's is to be read.
        self.key: str | int | None = None if mapping else 0


def json_locator(text: str) -> Locate:
    """Return the same for a JSON text that is known to be valid."""
    read: list[_Place] = []

    def locate(loc: Loc) -> int | None:
        if not read:
            read.append(_json_places(text))
        place = read[0]
        for part in loc:
            inner = place.members.get(part)
            if inner is None:
                break
            place = inner
        return place.line

    return locate


def _json_places(text: str) -> _Place:
    outside = _Place(1)
    opened = [outside]
    line, end = 1, 0
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", end, token.start())
        end = token.start()
        word, here = token[0], opened[-1]
        if word in {"]", "}"}:
            opened.pop()
        elif word == ",":
            here.key = here.key + 1 if isinstance(here.key, int) else None
        elif here.key is None:
            here.key, here.key_line = json.loads(word), line
        elif word != ":":
            place = _Place(here.key_line if here.mapping else line, mapping=word == "{")
            here.members[here.key] = place
            if word in {"[", "{"}:
                opened.append(place)
    return outside.members.get(0, outside)
