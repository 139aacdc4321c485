"""What a factory's `register` fills: which code runs nodes of which type."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from evalcore.targets.flow_answer import AnswerError

_FORM: Final = (
    "registry.register(node) takes an object with 'type' and 'run(input, *, context)', or a type "
    "and a function"
)
_CONTEXT_NAMES: Final = ("context", "ctx")


class NodeRegistry:
    """The types of nodes of one work item. The last registration of a type wins."""

    def __init__(self) -> None:
        self._runs: dict[str, Callable[..., Any]] = {}

    def register(self, node: Any, run: Any = None) -> None:
        """Register a node: an object (or mapping) with `type` and `run`, or a type and a function.

        Raises `TypeError` for anything else.
        """
        if isinstance(node, str):
            type_, function = node, run if callable(run) else _member(run, "run")
        else:
            type_, function = _member(node, "type"), run or _member(node, "run")
        if inspect.isclass(node):
            raise TypeError(f"{_FORM}; {node.__name__} is a class: pass an instance")
        if not isinstance(type_, str) or not type_ or not callable(function):
            raise TypeError(f"{_FORM}; it got {_shown(node)}")
        self._runs[type_] = function

    def find(self, type_: str) -> Callable[..., Any] | None:
        """Return what runs nodes of a type; None if nothing is registered for it."""
        return self._runs.get(type_)

    def __contains__(self, type_: object) -> bool:
        return type_ in self._runs

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)


def register_call(register: Any, registry: NodeRegistry, mode: str) -> tuple[list[Any], Any]:
    """Return the arguments of a factory's `register(registry, mode)`; the mode may be left out."""
    if not callable(register):
        raise AnswerError("'register' is a function register(registry, mode)")
    try:
        parameters = list(inspect.signature(register).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return [registry, mode], {}
    if any(one.kind is one.KEYWORD_ONLY and one.name == "mode" for one in parameters):
        return [registry], {"mode": mode}
    positional = [
        one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    takes_all = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    return [registry, mode][: 2 if takes_all else max(1, len(positional))], {}


def node_arguments(
    run: Callable[..., Any], value: Any, context: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Return what to call a node's `run` with: the input, and the context if it takes one."""
    try:
        parameters = list(inspect.signature(run).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return [value], {}
    named = [one for one in parameters if one.kind is not one.POSITIONAL_ONLY]
    keywords = {one.name: context for one in named if one.name in _CONTEXT_NAMES}
    if not keywords and any(one.kind is one.VAR_KEYWORD for one in parameters):
        keywords = {"context": context}
    positional = [
        one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    own = [one for one in positional if one.name not in keywords]
    if not own:
        if any(one.kind is one.KEYWORD_ONLY and one.name == "input" for one in parameters):
            return [], {**keywords, "input": value}
        takes_all = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        return ([value] if takes_all else []), keywords
    if positional[0].name in keywords:  # `run(context, input)`
        return [], {**keywords, own[0].name: value}
    return [value], keywords


def _shown(node: Any) -> str:
    """Return a value, of an object its type: its text may hold an address in memory."""
    plain = node is None or isinstance(node, str | int | float | Mapping)
    return f"{node!r:.80}" if plain else f"an object of type {type(node).__name__}"


def _member(node: Any, name: str) -> Any:
    return node.get(name) if isinstance(node, Mapping) else getattr(node, name, None)
