"""Fingerprints: digests of what an eval's result depends on, compared to tell its freshness."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from evalcore.version import VERSION
from evalcore.workflow.definition import DEFAULT_SOUL

METRICS_ENGINE: Final = "conditions-1"
_ANNOTATIONS: Final = frozenset({"title", "description", "examples", "default", "$comment"})


def fingerprint(value: Any) -> str:
    """Return the SHA-256 (hex) of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def schema_fingerprint(schema: Any) -> str:
    """Return the fingerprint of a schema without what only people read."""
    return fingerprint(_without_annotations(schema, is_schema=True))


def _without_annotations(value: Any, *, is_schema: bool) -> Any:
    if isinstance(value, list):
        return [_without_annotations(element, is_schema=True) for element in value]
    if not isinstance(value, dict):
        return value
    return {
        # The members of `properties` are names of the user's, which may be those of annotations.
        key: _without_annotations(below, is_schema=not is_schema or key not in _NAMED)
        for key, below in value.items()
        if not (is_schema and key in _ANNOTATIONS)
    }


_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})


def block_fingerprint(definition: Mapping[str, Any], block_id: str) -> str:
    """Return the fingerprint of one block, of the souls that it asks and of the blocks inside."""
    blocks, souls = definition.get("blocks") or {}, definition.get("souls") or {}
    parts: list[Any] = []
    waiting, visited = [block_id], {block_id}
    while waiting:
        block = blocks.get(waiting.pop(0))
        if not isinstance(block, Mapping):
            parts.append([block, None])
            continue
        names = _souls_of(block)
        definitions = [souls.get(name) for name in names]
        parts.append([block, definitions[0] if len(definitions) == 1 else definitions])
        inside = [name for name in block.get("inner_block_refs") or () if name not in visited]
        waiting.extend(inside)
        visited.update(inside)
    return fingerprint(parts[0] if len(parts) == 1 else parts)


def _souls_of(block: Mapping[str, Any]) -> list[str]:
    """Return the souls that a block asks: its own or the default one, and those of its exits."""
    exits = [member for member in block.get("exits") or () if isinstance(member, Mapping)]
    named = [member.get("soul_ref") for member in (block, *exits)]
    return list(dict.fromkeys(str(name or DEFAULT_SOUL) for name in named))


def upstream_fingerprint(definition: Mapping[str, Any], block_id: str) -> str:
    """Return the fingerprint of a block and of every block that may run before it."""
    blocks = sorted({block_id, *upstream_blocks(definition, block_id)})
    return fingerprint([[name, block_fingerprint(definition, name)] for name in blocks])


def upstream_blocks(definition: Mapping[str, Any], block_id: str) -> frozenset[str]:
    """Return the blocks from which transitions, routes or inner blocks lead to a block."""
    before: dict[str, set[str]] = {}
    for source, target in _edges(definition):
        before.setdefault(target, set()).add(source)
    upstream: set[str] = set()
    waiting = [block_id]
    while waiting:
        for source in before.get(waiting.pop(), ()):
            if source not in upstream:
                upstream.add(source)
                waiting.append(source)
    return frozenset(upstream - {block_id})


def _edges(definition: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield pairs of a block and a block that may run after it."""
    blocks = definition.get("blocks") or {}
    workflow = definition.get("workflow") or {}
    for transition in [
        *(workflow.get("transitions") or ()),
        *(workflow.get("conditional_transitions") or ()),
    ]:
        if isinstance(transition, Mapping) and isinstance(transition.get("from"), str):
            for target in _block_names(transition, blocks):
                yield transition["from"], target
    for name, block in blocks.items():
        if isinstance(block, Mapping):
            for target in _block_names(
                [block.get(key) for key in ("routes", "error_route", "inputs", "exits", "depends")],
                blocks,
            ):
                yield (target, name) if _is_input(block, target) else (name, target)
            for inner in block.get("inner_block_refs") or ():
                yield name, inner


def _is_input(block: Mapping[str, Any], name: str) -> bool:
    listed = [block.get("inputs"), block.get("depends")]
    return name in _block_names(listed, {name})


def _block_names(value: Any, blocks: Iterable[str]) -> Iterable[str]:
    """Yield the blocks that texts in a value name, alone or at the head of a path."""
    names = set(blocks)
    if isinstance(value, str):
        head = value
        while head and head not in names:
            head = head.rpartition(".")[0]
        if head:
            yield head
    elif isinstance(value, Mapping):
        for below in value.values():
            yield from _block_names(below, names)
    elif isinstance(value, list):
        for below in value:
            yield from _block_names(below, names)


def result_fingerprints(
    definition: Mapping[str, Any], block_id: str, *, inputs: str, assertion: str
) -> dict[str, str]:
    """Return what a result depends on: inputs, workflow draft, block, assertion, engines."""
    return {
        "inputs": inputs,
        "workflow": upstream_fingerprint(definition, block_id),
        "block": block_fingerprint(definition, block_id),
        "assertion": assertion,
        "engine": VERSION,
        "metrics_engine": METRICS_ENGINE,
    }
