"""A flow of nodes as a factory returns it: read, checked, ordered (docs/reference/suites.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from evalcore.mistakes.wording import suggest
from evalcore.targets.flow_answer import AnswerError
from evalcore.targets.node_conditions import When, read_when
from evalcore.targets.node_inputs import References

PRIMARY_KEYS: Final = (
    "primary_output",
    "primaryOutput",
    "primary_output_node_id",
    "primaryOutputNodeId",
)
WRAPPER_KEYS: Final = ("flow", "register", *PRIMARY_KEYS)
NO_INPUT: Final = object()
_FLOW_KEYS: Final = ("name", "description", "nodes", "edges")
_NODE_KEYS: Final = ("id", "type", "input", "config", "description", "policy")
_EDGE_KEYS: Final = ("from", "to", "when")
_POLICY_KEYS: Final = ("timeout_ms", "continue_on_error", "retry")
_RETRY_KEYS: Final = ("max_attempts", "backoff_ms")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


class NodePolicy(NamedTuple):
    """How often a node is tried and how long; whether the flow goes on when it fails."""

    timeout_s: float | None = None
    attempts: int = 1
    backoff_s: float = 0.0
    continue_on_error: bool = False


class Node(NamedTuple):
    """A node. `input` is `NO_INPUT` where none is written."""

    id: str
    type: str
    input: Any
    config: Mapping[str, Any]
    policy: NodePolicy


class Edge(NamedTuple):
    """A way from a node to another, taken if its condition holds."""

    source: str
    target: str
    when: When | None


@dataclass(frozen=True, slots=True)
class NodeFlow:
    """A sound flow: `nodes` in an order in which each comes after its predecessors.

    `into` has the edges that lead to a node.
    """

    name: str
    nodes: tuple[Node, ...]
    into: Mapping[str, tuple[Edge, ...]]
    references: References

    def has_output(self, path: str) -> bool:
        """Whether a path (`node`, `node.field`) begins with a node's id."""
        return any(path == node.id or path.startswith(f"{node.id}.") for node in self.nodes)


def as_wrapper(value: Any) -> Mapping[str, Any] | None:
    """Return what a factory returned as `{flow, register, …}`; None if it is no such thing.

    Objects, dataclasses and models with these attributes are taken as well.
    """
    if isinstance(value, Mapping):
        return value if "flow" in value else None
    if isinstance(value, type) or callable(value) or not hasattr(value, "flow"):
        return None
    members = {key: getattr(value, key) for key in WRAPPER_KEYS if hasattr(value, key)}
    return {key: member for key, member in members.items() if key == "flow" or member is not None}


def as_nodes(value: Any) -> Mapping[str, Any] | None:
    """Return a flow of nodes as a mapping; None if the value is none."""
    flow = _mapping(value, _FLOW_KEYS)
    return flow if flow is not None and ("nodes" in flow or "edges" in flow) else None


def read_node_flow(raw: Mapping[str, Any]) -> NodeFlow:
    """Return the flow that a mapping describes; raise `AnswerError` that says what is wrong."""
    flow = _checked(raw, _FLOW_KEYS, "the flow")
    name = str(flow.get("name") or "flow")
    written = flow.get("nodes")
    if not isinstance(written, list | tuple) or not written:
        raise AnswerError(f"flow '{name}': 'nodes' is a list of {{id, type, input}}, not empty")
    nodes = [_node(raw_node, position) for position, raw_node in enumerate(written)]
    _check_ids(nodes)
    edges = _edges(flow.get("edges"), nodes)
    ordered = _in_order(nodes, edges)
    references = References([node.id for node in nodes])
    _check_references(ordered, edges, references)
    into = {node.id: tuple(edge for edge in edges if edge.target == node.id) for node in nodes}
    return NodeFlow(name, tuple(ordered), into, references)


def _node(raw: Any, position: int) -> Node:
    where = f"nodes[{position}]"
    mapping = _mapping(raw, _NODE_KEYS)
    if mapping is None:
        raise AnswerError(f"{where} is a mapping {{id, type, input}}, not {type(raw).__name__}")
    node = _checked(mapping, _NODE_KEYS, where)
    for key in ("id", "type"):
        if not isinstance(node.get(key), str) or not node[key].strip():
            raise AnswerError(f"{where}: '{key}' is required: a text")
    where = f"node '{node['id']}'"
    config = node.get("config")
    if config is not None and not isinstance(config, Mapping):
        raise AnswerError(f"{where}: 'config' is a mapping")
    policy = _policy(node, where)
    return Node(node["id"], node["type"], node.get("input", NO_INPUT), dict(config or {}), policy)


def _policy(node: Mapping[str, Any], where: str) -> NodePolicy:
    written = node.get("policy")
    if written is None:
        return NodePolicy()
    if not isinstance(written, Mapping):
        raise AnswerError(f"{where}: 'policy' is a mapping of {', '.join(_POLICY_KEYS)}")
    policy = _checked(written, _POLICY_KEYS, f"{where}: policy")
    retry = policy.get("retry") or {}
    if not isinstance(retry, Mapping):
        raise AnswerError(f"{where}: policy.retry is a mapping of {', '.join(_RETRY_KEYS)}")
    retry = _checked(retry, _RETRY_KEYS, f"{where}: policy.retry")
    attempts = retry.get("max_attempts", 1)
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise AnswerError(f"{where}: policy.retry.max_attempts is a whole number from 1 on")
    backoff_ms = _milliseconds(retry.get("backoff_ms", 0), f"{where}: policy.retry.backoff_ms")
    timeout_ms = policy.get("timeout_ms")
    timeout_s = None
    if timeout_ms is not None:
        timeout_s = _milliseconds(timeout_ms, f"{where}: policy.timeout_ms") / 1000
    return NodePolicy(timeout_s, attempts, backoff_ms / 1000, bool(policy.get("continue_on_error")))


def _milliseconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise AnswerError(f"{where} is a number of milliseconds")
    return float(value)


def _check_ids(nodes: Iterable[Node]) -> None:
    ids = [node.id for node in nodes]
    for name in ids:
        if ids.count(name) > 1:
            raise AnswerError(f"two nodes have the id '{name}'; ids are unique")


def _edges(written: Any, nodes: list[Node]) -> list[Edge]:
    """Return the edges; without any each node follows the one before it in the list."""
    if not written:
        return [Edge(a.id, b.id, None) for a, b in pairwise(nodes)]
    if not isinstance(written, list | tuple):
        raise AnswerError("'edges' is a list of {from, to, when}")
    ids = [node.id for node in nodes]
    edges = []
    for position, raw in enumerate(written):
        where = f"edges[{position}]"
        mapping = _mapping(raw, _EDGE_KEYS)
        if mapping is None:
            raise AnswerError(f"{where} is a mapping {{from, to, when}}, not {type(raw).__name__}")
        edge = _checked(mapping, _EDGE_KEYS, where)
        for key in ("from", "to"):
            if edge.get(key) not in ids:
                hint = suggest(edge.get(key), ids)
                raise AnswerError(f"{where}: '{key}' names no node: {edge.get(key)!r}.{hint}")
        when = edge.get("when")
        condition = None if when is None else read_when(when, f"{where}.when")
        edges.append(Edge(edge["from"], edge["to"], condition))
    return edges


def _in_order(nodes: list[Node], edges: list[Edge]) -> list[Node]:
    """Return the nodes so that each follows its predecessors, else in their own order."""
    waiting = {node.id: {edge.source for edge in edges if edge.target == node.id} for node in nodes}
    ordered: list[Node] = []
    left = list(nodes)
    while left:
        node = next((ready for ready in left if not waiting[ready.id]), None)
        if node is None:
            raise AnswerError(f"the edges go round: {_cycle(left, waiting)}")
        left.remove(node)
        ordered.append(node)
        for before in waiting.values():
            before.discard(node.id)
    return ordered


def _cycle(left: list[Node], waiting: Mapping[str, set[str]]) -> str:
    way = [left[0].id]
    while way[-1] not in way[:-1]:
        way.append(min(waiting[way[-1]]))
    return " → ".join(reversed(way[way.index(way[-1]) :]))


def _check_references(nodes: list[Node], edges: list[Edge], references: References) -> None:
    """Raise `AnswerError` for an input that refers to what has not run before."""
    before: dict[str, set[str]] = {}
    for node in nodes:
        sources = {edge.source for edge in edges if edge.target == node.id}
        before[node.id] = sources.union(*(before[source] for source in sources))
        named = references.named_in(node.input)
        later = [name for name in named if name not in before[node.id]]
        if later:
            raise AnswerError(
                f"node '{node.id}': its input refers to '{later[0]}', which does not run before "
                f"it; add the edge {later[0]} → {node.id}, or write {{{{{later[0]}}}}} for the text"
            )


def _mapping(value: Any, keys: Iterable[str]) -> Mapping[str, Any] | None:
    """Return a mapping, or the attributes of an object that has some of these."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str | list | tuple | type) or value is None:
        return None
    members = {key: getattr(value, key) for key in (*keys, "from_") if hasattr(value, key)}
    if "from_" in members:
        members.setdefault("from", members["from_"])
        del members["from_"]
    return {key: member for key, member in members.items() if member is not None} or None


def _checked(raw: Mapping[str, Any], keys: tuple[str, ...], where: str) -> dict[str, Any]:
    """Return a mapping with its keys in snake case; raise `AnswerError` for an unknown one."""
    named: dict[str, Any] = {}
    for key, value in raw.items():
        name = _HUMP.sub(r"_\1", str(key)).lower()
        if name not in keys:
            raise AnswerError(f"{where}: unknown key '{key}'.{suggest(name, keys)}")
        named[name] = value
    return named
