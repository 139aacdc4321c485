"""Which code, programs and files the parts of a suite name (docs/reference/engine.md).

A name is a text, `python package.module`, `command {…}` or `file path`; `SuiteDefinition.code` has
the digest of what it stands for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

PYTHON: Final = "python "
COMMAND: Final = "command "
FILE: Final = "file "
# Checks that are code, and those that hold other checks.
CODE_CHECKS: Final = frozenset(
    {"at-path-later", "code-grader", "composite", "custom", "llm-grader", "python"}
)
# What a program of this process defined; its digest stands beside it.
_LOCAL: Final = "local:"
_WITHIN: Final = (dict, list, tuple)


def code_names(value: Any) -> Iterator[str]:
    """Yield the names of the code in options, parameters or statements, as they are written."""
    if isinstance(value, Mapping):
        yield from _named_here(value)
        for member in value.values():
            if isinstance(member, _WITHIN):
                yield from code_names(member)
    elif isinstance(value, list | tuple):
        for member in value:
            if isinstance(member, _WITHIN):
                yield from code_names(member)


def _named_here(value: Mapping[str, Any]) -> Iterator[str]:
    function, tool = value.get("callable"), value.get("import_tool")
    if isinstance(function, str) and not function.startswith(_LOCAL):
        yield f"{PYTHON}{function.partition(':')[0]}"
    if isinstance(tool, str) and tool and "/" not in tool:
        module = tool.partition(":")[0] if ":" in tool else tool.rpartition(".")[0] or tool
        yield f"{PYTHON}{module}"
    command = value.get("command")
    if isinstance(command, str | list | tuple) and command:
        words = [command] if isinstance(command, str) else list(command)
        named = {"words": [str(word) for word in [*words, *_words(value.get("args"))]]}
        if isinstance(value.get("cwd"), str):
            named["cwd"] = value["cwd"]
        yield COMMAND + orjson.dumps(named, option=orjson.OPT_SORT_KEYS).decode()
    if isinstance(value.get("source"), str) and "returns" in value:
        yield f"{FILE}{value['source']}"
    if isinstance(value.get("fixtures"), str) and "source_target" in value:
        yield f"{FILE}{value['fixtures']}"


def _words(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def attached_names(messages: Any) -> Iterator[str]:
    """Yield the names of the files and images in a list of messages."""
    if not isinstance(messages, list | tuple):
        return
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list | tuple) else ():
            if isinstance(part, Mapping) and part.get("type") in {"file", "image"}:
                yield f"{FILE}{part.get('value')}"


def code_identity(names: Iterable[str], code: Mapping[str, str]) -> bytes:
    """Return the digest of what the names stand for; nothing where none of them is known."""
    digests = sorted({(name, code[name]) for name in names if name in code})
    return hashlib.sha256(orjson.dumps(digests)).digest() if digests else b""
