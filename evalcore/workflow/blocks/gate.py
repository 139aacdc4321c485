"""`gate`: a model call whose first line says pass or fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from evalcore.declared.types import Text
from evalcore.mistakes.wording import nearest
from evalcore.workflow.definition import Branch, ModelBlock
from evalcore.workflow.failure import BlockError
from evalcore.workflow.values import MISSING, at_path, parsed, text_of

if TYPE_CHECKING:
    from evalcore.workflow.context import Context
    from evalcore.workflow.names import Names, WorkflowMistake

_INSTRUCTION: Final = (
    "Decide whether the following content is good enough. Answer with PASS or FAIL on the first "
    "line, and with your reasons on the lines after it."
)
_PASS: Final = re.compile(r"\W*pass(ed)?\b", re.IGNORECASE)


class GateBlock(ModelBlock):
    """Asks a model whether the value at `eval_key` is good enough; the output is the whole answer.

    `eval_key` is a block or a path; by default all values that the block sees.
    """

    needs: ClassVar[tuple[str, ...]] = ("eval_key",)
    inputs_suffice: ClassVar[bool] = True
    is_text: ClassVar[bool] = True

    type: Literal["gate"]
    passed: Text | None = Field(default=None, alias="pass")
    failed: Text | None = Field(default=None, alias="fail")
    eval_key: Text | None = None
    extract_field: Text | None = None

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """The ways of the verdict come first."""
        verdicts = (("pass", self.passed), ("fail", self.failed))
        ways = tuple(Branch(name, None, goto, True) for name, goto in verdicts if goto)
        return (*ways, *super().branches)

    def stated_exit(self, output: Any) -> str:
        """Return the verdict: the answer's first line, or a JSON answer's member `eval_key`."""
        value = parsed(output)
        stated = value.get(self.eval_key) if isinstance(value, Mapping) else None
        return gate_handle(text_of(output if stated is None else stated))

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:
        """Yield an `eval_key` that begins like a block and names none."""
        key = self.eval_key
        # A key that is near nothing may be that of the verdict in a JSON answer.
        if key is None or key in (self.inputs or {}):
            return
        if "." in key or nearest(key, names.blocks) is not None:
            yield from names.reference(key, ("eval_key",))

    async def run(self, context: Context) -> Any:
        """Return the whole answer on what `eval_key` names: an input, a block, or a path into one.

        A key that names neither (it may be that of the verdict in the answer) means all the block
        sees.
        """
        content = self._content(context)
        if self.extract_field is not None:
            content = at_path(content, self.extract_field)
            if content is MISSING:
                message = f"extract_field: there is no '{self.extract_field}' in what is judged"
                raise BlockError("input", message)
        return await context.ask(self.soul_ref, f"{_INSTRUCTION}\n\n{text_of(content)}")

    def _content(self, context: Context) -> Any:
        key = self.eval_key
        if key is None:
            return context.data
        for value in (at_path(context.inputs or {}, key), context.state.find(key)):
            if value is not MISSING:
                return value
        if "." in key or key in context.definition.blocks:
            names = context.state.known_names()
            raise BlockError("input", f"eval_key: there is no '{key}'; {names}")
        return context.data


def gate_handle(answer: str) -> str:
    """Return `pass` if the first line that is not blank begins with it, else `fail`."""
    first = next((line for line in answer.splitlines() if line.strip()), "")
    return "pass" if _PASS.match(first) else "fail"
