"""The targets that a YAML file lists, read without the tests beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def read_target_entries(file: Path) -> list[Any]:
    """Return the list at `targets` of a YAML file, or the list that the file is; scalars as text.

    A large suite is read up to there. Raises `KeyError` if there is no `targets`, `ValueError` for
    what is no YAML.
    """
    loader = _LOADER(file.read_bytes())
    try:
        while not loader.check_event(yaml.MappingStartEvent, yaml.SequenceStartEvent):
            if loader.get_event() is None:  # the end of the file
                raise ValueError(str(file))
        reader = _Reader(loader)
        if loader.check_event(yaml.SequenceStartEvent):
            listed = reader.value()
        else:
            listed = reader.member("targets")
    except (yaml.YAMLError, AttributeError) as problem:
        raise ValueError(str(file)) from problem
    finally:
        loader.dispose()
    if not isinstance(listed, list):
        raise ValueError(str(file))
    return listed


class _Reader:
    """Makes values of events: texts, lists, mappings. Merge keys are not followed."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._anchors: dict[str, Any] = {}

    def member(self, name: str) -> Any:
        """Return the value of a key of the mapping that begins here."""
        self._loader.get_event()
        while not self._loader.check_event(yaml.MappingEndEvent):
            key, value = self.value(), self.value()
            if key == name:
                return value
        raise KeyError(name)

    def value(self) -> Any:
        """Return the value that begins here."""
        event = self._loader.get_event()
        if isinstance(event, yaml.AliasEvent):
            return self._anchors[event.anchor or ""]
        value = self._container(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _container(self, event: Any) -> Any:
        loader = self._loader
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not loader.check_event(yaml.SequenceEndEvent):
                items.append(self.value())
            loader.get_event()
            return items
        if isinstance(event, yaml.MappingStartEvent):
            members: dict[Any, Any] = {}
            while not loader.check_event(yaml.MappingEndEvent):
                key = self.value()
                members[key if isinstance(key, str) else repr(key)] = self.value()
            loader.get_event()
            return members
        return event.value
