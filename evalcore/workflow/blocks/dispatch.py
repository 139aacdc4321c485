"""`dispatch`: a model call for each exit, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from evalcore.workflow.definition import Exit, ModelBlock
from evalcore.workflow.names import WorkflowMistake

if TYPE_CHECKING:
    from evalcore.workflow.context import Context
    from evalcore.workflow.names import Names


class DispatchBlock(ModelBlock):
    """A model call for each exit, at the same time; the output is exit → answer."""

    needs: ClassVar[tuple[str, ...]] = ("exits",)

    type: Literal["dispatch"]

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:
        """Yield repeated exits, exits without a task, and unknown souls."""
        ids: set[str] = set()
        for number, way in enumerate(self.exits or ()):
            if way.id in ids:
                yield WorkflowMistake(("exits", number, "id"), f"duplicate exit '{way.id}'")
            ids.add(way.id)
            if not way.task:
                yield WorkflowMistake(("exits", number), "an exit of a dispatch needs a 'task'")
            yield from names.soul(way.soul_ref, ("exits", number, "soul_ref"))

    def templates(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the tasks of the exits."""
        for number, way in enumerate(self.exits or ()):
            yield ("exits", number, "task"), way.task

    async def run(self, context: Context) -> Any:
        """Return the answers by exit; each stands at `block.exit` as well.

        If calls fail, the others are waited for, and the first failing exit's error is raised.
        """
        exits = self.exits or ()
        group = len(context.calls)

        async def answer(way: Exit) -> str:
            fixture = context.fixtures.get(f"{self.id}.{way.id}")
            if fixture is not None:
                return fixture
            text = context.message(way.task, f"exits.{way.id}.task")
            soul_ref = way.soul_ref or self.soul_ref
            return await context.ask(soul_ref, text, part=way.id, group=group)

        answers = await asyncio.gather(*map(answer, exits), return_exceptions=True)
        outputs: dict[str, Any] = {}
        for way, text in zip(exits, answers, strict=True):
            if isinstance(text, BaseException):
                raise text
            outputs[way.id] = text
        for name, text in outputs.items():
            context.state.outputs[f"{self.id}.{name}"] = text
        return outputs
