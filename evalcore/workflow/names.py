"""What a workflow may name: its blocks, their outputs, its souls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from evalcore.mistakes.wording import suggest
from evalcore.workflow.conditions import OPERATORS, UNARY, BlockCondition, ConditionGroup
from evalcore.workflow.definition import Block, Carry
from evalcore.workflow.souls import Soul

Loc = tuple[str | int, ...]
_ROOTS: Final = frozenset(
    {"workflow", "results", "outputs", "shared_memory", "metadata", "current_task"}
)


class WorkflowMistake(NamedTuple):
    """Something wrong at a path into the workflow (or into a block of it)."""

    loc: Loc
    message: str


class Names:
    """The blocks and souls of a workflow; `souls` None: any soul may be named."""

    def __init__(self, blocks: Mapping[str, Block], souls: Mapping[str, Soul] | None) -> None:
        self.blocks, self.souls = blocks, souls
        self._shared = {Carry().inject_as}
        self._outputs = {name: name for name in blocks}
        for name, block in blocks.items():
            self._outputs.update({f"{name}.{way.id}": name for way in block.exits or ()})
            carry = getattr(block, "carry_context", None)
            if isinstance(carry, Carry):
                self._shared.add(carry.inject_as)

    def block(self, name: object, loc: Loc) -> Iterator[WorkflowMistake]:
        """Yield a mistake if no block has this id."""
        if name not in self.blocks:
            yield WorkflowMistake(loc, f"unknown block '{name}'.{suggest(name, self.blocks)}")

    def soul(self, name: object, loc: Loc) -> Iterator[WorkflowMistake]:
        """Yield a mistake if no soul has this id."""
        if name is None or self.souls is None or name in self.souls:
            return
        hint = (
            suggest(name, self.souls)
            or f" Define it under 'souls:' or in custom/souls/{name}.yaml."
        )
        yield WorkflowMistake(loc, f"unknown soul '{name}'.{hint}")

    def owner(self, path: str) -> str | None:
        """Return the block whose output a path begins with; None if it begins with none."""
        return next((self._outputs[head] for head in heads_of(path) if head in self._outputs), None)

    def reference(self, path: str, loc: Loc) -> Iterator[WorkflowMistake]:
        """Yield a mistake if a path begins with no block, exit, input or shared value."""
        head = path
        if head.partition(".")[0] in _ROOTS or head.startswith("__"):
            return
        for head in heads_of(path):
            if head in self._outputs or head in self._shared:
                return
        if head.endswith("_round") and head.removesuffix("_round") in self.blocks:
            return
        hint = suggest(head, [*self.blocks, "workflow"])
        message = f"'{path}' begins with '{head}', which is neither a block nor 'workflow'.{hint}"
        yield WorkflowMistake(loc, message)


def heads_of(path: str) -> Iterator[str]:
    """Yield a path and each shorter one that it begins with: ids may hold dots."""
    yield path
    while (cut := max(path.rfind("."), path.rfind("["))) > 0:
        path = path[:cut]
        yield path


def condition_mistakes(
    written: ConditionGroup | BlockCondition | None, loc: Loc
) -> Iterator[WorkflowMistake]:
    """Yield what is wrong with the operators and patterns of conditions."""
    if isinstance(written, ConditionGroup):
        for number, condition in enumerate(written.conditions):
            yield from condition_mistakes(condition, (*loc, "conditions", number))
    elif written is not None:
        has_value = "value" in written.model_fields_set
        yield from operator_mistakes(written.operator, written.value, loc, has_value=has_value)


def operator_mistakes(
    operator: str, value: object, loc: Loc, *, has_value: bool
) -> Iterator[WorkflowMistake]:
    """Yield what is wrong with one comparison at `loc`."""
    if operator not in OPERATORS:
        message = f"unknown operator '{operator}'.{suggest(operator, OPERATORS)}"
        yield WorkflowMistake((*loc, "operator"), message)
    elif operator not in UNARY and not has_value:
        yield WorkflowMistake(loc, f"the operator '{operator}' needs a 'value'")
    elif operator == "regex":
        yield from pattern_mistakes(value, (*loc, "value"))


def pattern_mistakes(pattern: object, loc: Loc) -> Iterator[WorkflowMistake]:
    """Yield a mistake if a text is no pattern of Python's `re`."""
    try:
        re.compile(str(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        yield WorkflowMistake(loc, f"invalid pattern: {error}")
