"""The models that every iteration of a test asks."""

from __future__ import annotations

from collections.abc import Iterator

from evalcore.scripts.custom_tool import CustomTool
from evalcore.scripts.iteration import Tool
from evalcore.scripts.model_tools import DEFAULT_MODEL, ModelTool
from evalcore.scripts.statements.call import CallTool
from evalcore.scripts.statements.statement import Body
from evalcore.scripts.toolbox import NamedTool


def certain_models(body: Body) -> Iterator[str]:
    """Yield the names of models that calls outside of conditions and loops ask.

    Not those of calls whose exceptions are caught, or that say themselves which model is asked.
    """
    yield from _of_body(body, frozenset())


def _of_body(body: Body, entered: frozenset[int]) -> Iterator[str]:
    for statement in body.statements:
        if isinstance(statement, CallTool) and not statement.catch:
            yield from _of_tool(statement.tool, entered, names_model=statement.gives("model_ref"))


def _of_tool(tool: Tool, entered: frozenset[int], *, names_model: bool) -> Iterator[str]:
    while isinstance(tool, NamedTool):
        tool = tool.tool
    if isinstance(tool, ModelTool) and not names_model:
        yield str(tool.config.get("model_ref") or DEFAULT_MODEL)
    elif isinstance(tool, CustomTool) and id(tool) not in entered:
        yield from _of_body(tool.body, entered | {id(tool)})
