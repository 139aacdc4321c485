"""Write YAML that this project, YAML 1.1 and YAML 1.2 read as the same values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from evalcore.formats.text.documents import CoreLoader

try:
    from yaml import CSafeDumper as _BaseDumper
except ImportError:  # PyYAML without libyaml: slower, the same text
    from yaml import SafeDumper as _BaseDumper  # type: ignore[assignment,unused-ignore]

_NUMBERED: Final = "\\U"


def yaml_text(content: Mapping[str, Any]) -> str:
    """Return the text of a file, its keys in their order."""
    text = _dumped(content, _CoreDumper)
    # libyaml writes an emoji as its number, PyYAML's own emitter, ten times slower, as it is.
    return _dumped(content, _WideDumper) if _NUMBERED in text else text


def _dumped(content: Mapping[str, Any], dumper: type[Any]) -> str:
    text: str = yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


class _CoreDumper(_BaseDumper):
    """Quotes each text that YAML 1.2's core schema or YAML 1.1 reads as something else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write equal values each time: anchors are hard to read."""
        return True


class _WideDumper(yaml.SafeDumper):
    """The same for texts with characters beyond U+FFFF."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write equal values each time: anchors are hard to read."""
        return True


def _represent_text(dumper: yaml.representer.BaseRepresenter, text: str) -> yaml.Node:
    resolvers: Any = CoreLoader.yaml_implicit_resolvers
    patterns = (*resolvers.get(text[:1], ()), *resolvers.get(None, ()))
    if any(pattern.match(text) for _, pattern in patterns):
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'")
    # Line breaks that YAML folds, and controls that it refuses, stand escaped in double quotes.
    if not text.isprintable():
        lines = "|" if _is_literal_text(text) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=lines)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text)


def _is_literal_text(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) > 1 and all(line.isprintable() and line == line.strip("\t") for line in lines)


_CoreDumper.add_representer(str, _represent_text)
_WideDumper.add_representer(str, _represent_text)
