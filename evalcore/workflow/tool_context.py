"""What a call of a tool reads and uses of the run of its block."""

from __future__ import annotations

from typing import Protocol

from evalcore.model.exchange import Request
from evalcore.workflow.definition import Block
from evalcore.workflow.log import EventLog
from evalcore.workflow.services import EngineServices
from evalcore.workflow.values import WorkflowState


class ToolContext(Protocol):
    """One run of one block, as `workflow.context.Context` is one.

    `files` are those that tools wrote, by path.
    """

    @property
    def block(self) -> Block:
        """The block whose soul calls."""

    @property
    def state(self) -> WorkflowState:
        """The values of the execution."""

    @property
    def services(self) -> EngineServices:
        """What the execution uses from outside."""

    @property
    def log(self) -> EventLog:
        """Where events go."""

    @property
    def path(self) -> str:
        """The path of the block in events."""

    @property
    def files(self) -> dict[str, str]:
        """The files of the execution."""

    async def request(self, request: Request) -> str:
        """Return the body of the answer to an HTTP request; raise `BlockError`."""
