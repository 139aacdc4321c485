"""What the statements of one iteration run with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from evalcore.model.exchange import Complete, no_provider
from evalcore.scripts.failure import ToolError
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.providers.chat import ChatModel

MOST_STATEMENTS: Final = 1_000_000
DEEPEST_CALL: Final = 40

Scope = dict[str, Any]


class Models(Protocol):
    """The models of a script, by name."""

    def find(self, name: str) -> ChatModel:
        """Return a model; raise `TargetError` if there is none of that name."""


class Servers(Protocol):
    """The MCP servers of a script, connected to when the first tool is called."""

    async def call(self, server: str, tool: str, params: Mapping[str, Any]) -> Any:
        """Return the result of a tool; raise `ToolError`."""


@dataclass(slots=True)
class Iteration:
    """One iteration: how it reaches the world, what it has done so far.

    `folder` is the suite's. `warnings` stand beside the score. `statements` counts what was run,
    `depth` the tools that are being called within each other.
    """

    imports: ImportPolicy
    models: Models
    servers: Servers
    complete: Complete = no_provider
    folder: Path = field(default_factory=Path.cwd)
    warnings: list[str] = field(default_factory=list)
    statements: int = 0

    def count(self) -> None:
        """Count a statement; raise `ToolError` if there were too many."""
        self.statements += 1
        if self.statements > MOST_STATEMENTS:
            raise ToolError("LimitError", f"more than {MOST_STATEMENTS} statements in an iteration")

    def warn(self, message: str) -> None:
        """Note a warning, each once."""
        if message not in self.warnings:
            self.warnings.append(message)


class Tool(Protocol):
    """A function that a statement calls by its name."""

    name: str

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether a call may wait; `asked_tools` are the tools that are asked already."""

    def parameters(self) -> tuple[str, ...] | None:
        """Return the names of the parameters, in their order; None if any is taken."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters, for a model that may call the tool."""

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:
        """Return the result; raise what the tool raises. `scope` is the caller's."""


class WaitingTool:
    """What tools share that reach the world: calls wait, and the parameters are unknown here."""

    def waits(self, asked_tools: set[int]) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return True."""
        return True

    def parameters(self) -> tuple[str, ...] | None:
        """Return None: the tool takes any."""
        return None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of any parameters."""
        return {"type": "object"}
