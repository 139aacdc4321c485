"""What a factory's `register` fills: which code runs nodes of which type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter, isclass, signature
from typing import Any, Final

from evalcore.targets.flow_answer import AnswerError

_FORM: Final = (
    "registry.register(node) takes an object with 'type' and 'run(input, *, context)', or a type "
    "and a function"
)
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
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
        if isclass(node):
            raise TypeError(f"{_FORM}; {node.__name__} is a class: pass an instance")
        if not isinstance(type_, str) or not type_ or not callable(function):
            raise TypeError(f"{_FORM}; it got {_described(node)}")
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
    parameters = _parameters(register)
    if parameters is None:
        return [registry, mode], {}
    if "mode" in _names(parameters, Parameter.KEYWORD_ONLY):
        return [registry], {"mode": mode}
    takes_all = bool(_names(parameters, Parameter.VAR_POSITIONAL))
    positional = _names(parameters, *_POSITIONAL)
    return [registry, mode][: 2 if takes_all else max(1, len(positional))], {}


def node_arguments(
    run: Callable[..., Any], value: Any, context: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Return what to call a node's `run` with: the input, and the context if it takes one."""
    parameters = _parameters(run)
    if parameters is None:
        return [value], {}
    names = [each.name for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY]
    keywords = {name: context for name in names if name in _CONTEXT_NAMES}
    if not keywords and _names(parameters, Parameter.VAR_KEYWORD):
        keywords = {"context": context}
    positional = _names(parameters, *_POSITIONAL)
    own = [name for name in positional if name not in keywords]
    if not own:
        if "input" in _names(parameters, Parameter.KEYWORD_ONLY):
            return [], {**keywords, "input": value}
        return ([value] if _names(parameters, Parameter.VAR_POSITIONAL) else []), keywords
    if positional[0] in keywords:  # `run(context, input)`
        return [], {**keywords, own[0]: value}
    return [value], keywords


def _parameters(function: Callable[..., Any]) -> list[Parameter] | None:
    """Return a function's parameters; None for one in C without a signature."""
    try:
        return list(signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _names(parameters: Iterable[Parameter], *kinds: object) -> list[str]:
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def _described(node: Any) -> str:
    """Return a value, of an object its type: its text may hold an address in memory."""
    plain = node is None or isinstance(node, str | int | float | Mapping)
    return f"{node!r:.80}" if plain else f"an object of type {type(node).__name__}"


def _member(node: Any, name: str) -> Any:
    return node.get(name) if isinstance(node, Mapping) else getattr(node, name, None)
