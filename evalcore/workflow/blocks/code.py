"""`code`: Python in a process of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from evalcore.declared.types import Listed, Text
from evalcore.mistakes.shape_lookup import CALLABLE
from evalcore.workflow.definition import Block
from evalcore.workflow.names import WorkflowMistake
from evalcore.workflow.python_process import run_python
from evalcore.workflow.values import text_of

if TYPE_CHECKING:
    from evalcore.workflow.context import Context
    from evalcore.workflow.names import Names


_OLDER_NAMES: Final = ("results", "shared_memory", "metadata")


class CodeBlock(Block):
    """Python in its own process; the output is what the function returns, as JSON."""

    needs: ClassVar[tuple[str, ...]] = ("code", "callable")

    type: Literal["code"]
    code: Text | None = None
    callable: Annotated[str, Field(pattern=CALLABLE)] | None = None
    allowed_imports: Listed[Text] | None = None

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:  # noqa: ARG002 - the method of all types
        """Yield a second source of code, and imports that `allowed_imports` does not name."""
        if self.code and self.callable:
            yield WorkflowMistake(("callable",), "give 'code' or 'callable', not both")
        if self.allowed_imports is not None:
            for module in _imported_modules(self.code or ""):
                if module.partition(".")[0] not in self.allowed_imports:
                    message = f"imports '{module}', which 'allowed_imports' does not name"
                    yield WorkflowMistake(("code",), message)

    async def run(self, context: Context) -> Any:
        """Return what `main(data)` (or the function `callable` names) returns, as JSON holds it.

        The process has the minimal environment of `run_command`, 2 GiB of address space and the
        block's time. What it prints is not part of the output.
        """

        return await run_python(
            f"block '{self.id}'",
            self._data(context),
            context.services,
            code=self.code,
            reference=self.callable,
            timeout_s=self.timeout_seconds,
        )

    def _data(self, context: Context) -> dict[str, Any]:
        """Return what `main` is called with.

        Code of older files, which declare no inputs, reads the outputs as texts at `results`, and
        what is shared at `shared_memory` and `metadata`.
        """
        data, code = context.data, self.code or ""
        if context.inputs is not None or not any(name in code for name in _OLDER_NAMES):
            return data
        state = context.state
        shared = {**state.inputs, **state.shared}
        texts = {name: text_of(output) for name, output in state.outputs.items()}
        return {"results": texts, "shared_memory": shared, "metadata": shared, **data}


def _imported_modules(code: str) -> list[str]:
    """Return the modules that code imports; none of code that is no Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    modules: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.append(node.module)
    return modules
