"""The line of any path into a YAML or JSON text, found by reading it a second time.

JSON has a reader of its own here: YAML refuses tabs, surrogate pairs and long keys, which JSON may
have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import yaml

from evalcore.mistakes.locations import Loc, Locate

_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


class _Lines:
    """A list or mapping: its line, and its members: a scalar's line, or `_Lines`.

    A mapping's members are pairs of the key's line and the value's. Nodes of PyYAML take five times
    the memory.
    """

    __slots__ = ("line", "members")

    def __init__(self, line: int, members: list[Any] | dict[str, Any]) -> None:
        self.line = line
        self.members = members


def yaml_locator(text: str, loader: Any) -> Locate:
    """Return a function from a path to its line (from 1); the text is read at the first call.

    Of a path that does not exist it gives the line of the deepest part that does; None if the text
    is not valid.
    """
    read: list[_Lines | int | None] = []

    def locate(loc: Loc) -> int | None:
        if not read:
            try:
                read.append(_read_yaml(yaml.parse(text, Loader=loader)))
            except yaml.YAMLError:
                read.append(None)
        return None if read[0] is None else _line_of(read[0], loc)

    return locate


def _line_of(node: _Lines | int, loc: Loc) -> int:
    line = node if isinstance(node, int) else node.line
    for part in loc:
        if isinstance(node, int):
            break
        members = node.members
        if isinstance(members, dict):
            if str(part) not in members:
                break
            line, node = members[str(part)]
        elif isinstance(part, int) and part < len(members):
            node = members[part]
            line = node if isinstance(node, int) else node.line
        else:
            break
    return line


class _NodeLines:
    """Puts the lines of nodes into the collections that are open, as they stand in the text."""

    def __init__(self) -> None:
        self.outside = _Lines(1, [])
        self._opened = [self.outside]
        self._keys: list[tuple[str, int] | None] = [None]

    @property
    def wants_key(self) -> bool:
        """Whether the next scalar is the key of a mapping."""
        return isinstance(self._opened[-1].members, dict) and self._keys[-1] is None

    def put(self, node: _Lines | int, key: str, line: int) -> None:
        """Put a node where the next one belongs; as a key it is `key` at `line`."""
        members = self._opened[-1].members
        if isinstance(members, list):
            members.append(node)
        elif (name := self._keys[-1]) is None:
            self._keys[-1] = (key, line)
        else:
            members[name[0]] = (name[1], node)
            self._keys[-1] = None

    def open(self, node: _Lines) -> None:
        """Put what follows into a collection."""
        self._opened.append(node)
        self._keys.append(None)

    def close(self) -> None:
        """End the innermost collection."""
        self._opened.pop()
        self._keys.pop()

    @property
    def document(self) -> _Lines | int | None:
        """The first node of all."""
        members = self.outside.members
        return members[0] if isinstance(members, list) and members else None


def _read_yaml(events: Iterable[Any]) -> _Lines | int | None:
    """Return the lines of the first document that the parser's events tell of."""
    reader, anchors = _NodeLines(), dict[str, Any]()
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            reader.close()
        elif isinstance(event, yaml.DocumentEndEvent):
            break
        elif isinstance(event, yaml.NodeEvent):
            mark: Any = event.start_mark
            line = int(mark.line) + 1
            node: Any = line
            is_collection = isinstance(event, yaml.CollectionStartEvent)
            if is_collection:
                node = _Lines(line, {} if isinstance(event, yaml.MappingStartEvent) else [])
            if isinstance(event, yaml.AliasEvent):
                node = anchors.get(str(event.anchor), line)
            elif event.anchor:
                anchors[event.anchor] = node
            reader.put(node, str(getattr(event, "value", "")), line)
            if is_collection:
                reader.open(node)
    return reader.document


def json_locator(text: str) -> Locate:
    """Return the same for a JSON text that is known to be valid."""
    read: list[_Lines | int | None] = []

    def locate(loc: Loc) -> int | None:
        if not read:
            read.append(_read_json(text))
        return None if read[0] is None else _line_of(read[0], loc)

    return locate


def _read_json(text: str) -> _Lines | int | None:
    reader = _NodeLines()
    line, end = 1, 0
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", end, token.start())
        end = token.start()
        word = token[0]
        if word in {"]", "}"}:
            reader.close()
        elif word in {"[", "{"}:
            node = _Lines(line, [] if word == "[" else {})
            reader.put(node, "", line)
            reader.open(node)
        elif word not in {",", ":"}:
            reader.put(line, json.loads(word) if reader.wants_key else "", line)
    return reader.document
