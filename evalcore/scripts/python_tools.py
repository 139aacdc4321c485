"""Tools in Python of the suite: a function, a callable, or what makes one."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.scripts.failure import ToolError
from evalcore.scripts.iteration import Iteration, Scope, WaitingTool
from evalcore.trust.imports import ImportPolicy

_DOTTED: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*[.:][^\W\d]\w*")
# A function that takes one of these makes a tool.
_OF_FACTORIES: Final = ("tool_config",)
_METHODS: Final = ("run", "invoke", "_run")


def reference_of(text: str) -> str | None:
    """Return `module:symbol` for `module.symbol`; None if the text is neither.

    A lone name is a module and the symbol of that name in it.
    """
    if text.isidentifier():
        return f"{text}:{text}"
    if not _DOTTED.fullmatch(text):
        return None
    if ":" in text:
        return text
    module, _, symbol = text.rpartition(".")
    return f"{module}:{symbol}"


class _Loaded(NamedTuple):
    call: Callable[..., Any]
    names: tuple[str, ...] | None


class PythonTool(WaitingTool):
    """Calls a function with the parameters as its keywords, in a thread of its own."""

    def __init__(
        self, name: str | None, reference: str, description: str, config: dict[str, Any]
    ) -> None:
        self.reference = reference_of(reference) or reference
        self.name = name or self.reference.rpartition(":")[2]
        self.description = description
        self._given_name = name
        self._config = config
        self._loaded: dict[ImportPolicy, _Loaded] = {}

    def load(self, imports: ImportPolicy) -> None:
        """Import the symbol and make the tool; raise `EvalError`."""
        self._load(imports)

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return what the function returns; `ForeignError` if it raises."""
        from evalcore.trust.calls import call_foreign

        function, names = self._load(run.imports)
        if names is not None:
            for name in [name for name in params if name not in names]:
                run.warn(f"tool '{self.name}' has no parameter '{name}'; it is ignored")
                del params[name]
        return _plain(await call_foreign(function, **params))

    def _load(self, imports: ImportPolicy) -> _Loaded:
        loaded = self._loaded.get(imports)
        if loaded is None:
            symbol = imports.load(self.reference)
            try:
                function = self._function(symbol)
            except (UsageError, ToolError):
                raise
            # A constructor or factory of the suite.
            except Exception as error:
                message = f"{self.reference}: {type(error).__name__}: {error}"
                raise UsageError(f"tool '{self.name}' cannot be made: {message}") from error
            loaded = self._loaded[imports] = _Loaded(function, _names_of(function))
        return loaded

    def _function(self, symbol: Callable[..., Any]) -> Callable[..., Any]:
        """Return the callable: an instance of a class, what a factory gives, or the function."""
        config = self._config
        if inspect.isclass(symbol):
            return self._callable(symbol(**config))
        names = _names_of(symbol)
        if names is not None and any(name in names for name in _OF_FACTORIES):
            offered = {
                "context": None,
                "tool_config": dict(config),
                "name": self._given_name,
                "description": self.description or None,
            }
            arguments = {
                name: value
                for name, value in offered.items()
                if name in names and (value is not None or name == "context")
            }
            return self._callable(symbol(**arguments))
        return self._callable(symbol(**config)) if config else symbol

    def _callable(self, product: Any) -> Callable[..., Any]:
        if callable(product):
            return product  # type: ignore[no-any-return] # foreign by nature
        for name in _METHODS:
            method = getattr(product, name, None)
            if callable(method):
                return method  # type: ignore[no-any-return] # foreign by nature
        message = f"{self.reference} gave a {type(product).__name__}, which cannot be called"
        raise UsageError(f"tool '{self.name}': {message}")


def _names_of(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the names of the parameters; None if any is taken or they are unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return tuple(each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY)


def _plain(value: Any) -> Any:
    """Return models and dataclasses as mappings, anything else as it is."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return dict(value)
    return value
