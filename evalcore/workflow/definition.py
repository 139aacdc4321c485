"""A workflow as files declare it and the engine runs it: blocks, souls, transitions, limits.

Each class is both: the loader parses into it, the JSON Schema comes from it, and the engine reads
its fields. The block types stand in `workflow.blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag

from evalcore.declared.types import Listed, Seconds, Text
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import NOTHING
from evalcore.workflow.bounds import Caps, Retry
from evalcore.workflow.conditions import BlockCondition, ConditionGroup
from evalcore.workflow.interface import Interface, WorkflowConfig, WorkflowInput
from evalcore.workflow.part import WorkflowPart
from evalcore.workflow.soul_tools import SoulTool
from evalcore.workflow.souls import Soul

if TYPE_CHECKING:
    from evalcore.workflow.context import Context
    from evalcore.workflow.names import Names, WorkflowMistake

DEFAULT_TIMEOUT_S: Final = 300.0
MAX_DEPTH: Final = 10
END: Final = "END"


def _is_group(value: object) -> str:
    return "<group>" if isinstance(value, dict) and "conditions" in value else "<condition>"


def _is_mapping(value: object) -> str:
    return "<mapping>" if isinstance(value, dict) else "<text>"


Conditions = Annotated[
    Annotated[ConditionGroup, Tag("<group>")] | Annotated[BlockCondition, Tag("<condition>")],
    Discriminator(_is_group),
]


def group_of(written: ConditionGroup | BlockCondition | None) -> ConditionGroup | None:
    """Return the group; one condition is a group of its own."""
    return ConditionGroup(conditions=(written,)) if isinstance(written, BlockCondition) else written


class InputSource(WorkflowPart):
    """Where an input comes from: `block.path` or `workflow.x`; `default` if nothing is there.

    The `type` says whether saved evals freeze it as JSON or as a file.
    """

    path: Text = Field(alias="from")
    default: Any = None
    type: Literal["json", "file"] = "json"

    @property
    def has_default(self) -> bool:
        """Whether a default is written; null is one."""
        return "default" in self.model_fields_set


Input = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[InputSource, Tag("<mapping>")],
    Discriminator(_is_mapping),
]


class Branch(NamedTuple):
    """One way on: the name of its decision, its conditions, its target.

    Without conditions it is the default, or (`is_verdict`) what the verdict of a gate chooses.
    """

    decision: str | None
    when: ConditionGroup | None
    goto: str | None
    is_verdict: bool = False


class Route(WorkflowPart):
    """A way on with its conditions, or the default one."""

    case: Text | None = None
    case_id: Text | None = None
    when: Conditions | None = None
    default: bool = False
    goto: Text

    @property
    def branch(self) -> Branch:
        """The route as the engine follows it."""
        decision = self.case or self.case_id
        return Branch(decision, None if self.default else group_of(self.when), self.goto)


class Conditional(WorkflowPart):
    """Conditions: below `when` or `condition_group`, or one that stands beside the other keys."""

    condition_group: Conditions | None = None
    when: Conditions | None = None
    eval_key: str | None = None
    operator: Text | None = None
    value: Any = None

    @property
    def group(self) -> ConditionGroup | None:
        """The conditions; None if there are none."""
        written = self.when or self.condition_group
        if written is not None:
            return group_of(written)
        if self.operator is None:
            return None
        condition = {name: getattr(self, name) for name in BlockCondition.model_fields}
        return group_of(BlockCondition.model_construct(**condition))


class OutputCondition(Conditional):
    """A decision with its conditions; a conditional transition (or `goto`) says where it leads."""

    case_id: Text | None = None
    case: Text | None = None
    combinator: Literal["and", "or"] = "and"
    conditions: Listed[BlockCondition] | None = None
    default: bool = False
    goto: Text | None = None

    @property
    def group(self) -> ConditionGroup | None:
        """The conditions; an empty list of them holds."""
        if self.when or self.condition_group or self.conditions is None:
            return super().group
        return ConditionGroup.model_construct(
            conditions=self.conditions, combinator=self.combinator
        )

    @property
    def branch(self) -> Branch:
        """The decision as the engine follows it."""
        return Branch(self.case or self.case_id, None if self.default else self.group, self.goto)


class ExitCondition(Conditional):
    """An exit handle with what the output has to contain, match or meet."""

    exit_handle: Text
    contains: str | None = None
    regex: str | None = None


class Exit(WorkflowPart):
    """An exit of a block; that of a dispatch has a soul and a task."""

    id: Text
    label: str | None = None
    soul_ref: str | None = None
    task: str = ""


class Carry(WorkflowPart):
    """What a loop carries from round to round."""

    enabled: bool = True
    mode: Literal["last", "all"] = "last"
    source_blocks: Listed[str] | None = None
    inject_as: Text = "previous_round_context"


class Block(WorkflowPart):
    """One step: what blocks of every type have.

    `needs` are keys of which a block that runs has one; declared inputs take their place where
    `inputs_suffice`. `is_text`: a fixture of the block is text and is not parsed.
    `declares_outputs`: `outputs` says what the block's output must hold.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    inputs_suffice: ClassVar[bool] = False
    is_text: ClassVar[bool] = False
    declares_outputs: ClassVar[bool] = True

    id: str = ""
    type: str
    description: str | None = Field(default=None, exclude=True)
    stateful: bool = False
    stall_thresholds: dict[str, Any] | None = Field(default=None, exclude=True)
    assertions: list[Any] | None = None
    inputs: dict[str, Input] | None = None
    depends: str | Listed[str] | None = None
    error_route: str | None = None
    outputs: dict[str, Any] | None = None
    timeout_seconds: Seconds = DEFAULT_TIMEOUT_S
    retry_config: Retry | None = None
    output_conditions: Listed[OutputCondition] | None = None
    routes: Listed[Route] | None = None
    exit_conditions: Listed[ExitCondition] | None = None
    exits: Listed[Exit] | None = None
    limits: Caps | None = None

    @cached_property
    def sources(self) -> dict[str, InputSource] | None:
        """Where each declared input comes from; None if the block declares none."""
        if self.inputs is None:
            return None
        return {name: source_of(written) for name, written in self.inputs.items()}

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """The ways on, in the order in which they are tried."""
        routes = [route.branch for route in self.routes or ()]
        return (*routes, *(condition.branch for condition in self.output_conditions or ()))

    @property
    def required_blocks(self) -> tuple[str, ...]:
        """The ids in `depends`."""
        if not self.depends:
            return ()
        return (self.depends,) if isinstance(self.depends, str) else self.depends

    def stated_exit(self, output: Any) -> str | None:  # noqa: ARG002 - of a gate
        """Return the exit that an output of this type always states; None if it states none."""
        return None

    def templates(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the texts whose placeholders are filled, and where they stand."""
        yield from ()

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:  # noqa: ARG002 - of a type
        """Yield what blocks of this type name and the workflow does not have."""
        yield from ()

    async def run(self, context: Context) -> Any:
        """Return the output, a JSON value; raise `BlockError` if there is none."""
        raise NotImplementedError


class ModelBlock(Block):
    """A block that asks the model of a soul."""

    synonyms: ClassVar[Mapping[str, str]] = MappingProxyType({"soul": "soul_ref"})

    soul_ref: str | None = None


class Transition(WorkflowPart):
    """A plain transition; `to: null` is the end."""

    source: Text = Field(alias="from")
    to: str | None = None


class ConditionalTransition(WorkflowPart, extra="allow"):
    """A conditional transition: the other keys are decisions, with where they lead."""

    source: Text = Field(alias="from")
    default: str | None = None

    @property
    def edges(self) -> dict[str, str | None]:
        """Where each decision leads."""
        own = {"default": self.default} if "default" in self.model_fields_set else {}
        return {**own, **(self.model_extra or {})}


class Graph(WorkflowPart, extra="allow"):
    """The workflow's name, entry and edges."""

    name: str | None = None
    entry: Text | None = None
    transitions: Listed[Transition] | None = None
    conditional_transitions: Listed[ConditionalTransition] | None = None


class WorkflowSections(WorkflowPart, extra="allow"):
    """The sections of a workflow file but for its blocks."""

    souls: dict[str, Soul] | None = None
    workflow: Graph | None = None
    limits: Caps | None = None
    config: WorkflowConfig | None = None
    inputs: dict[str, WorkflowInput] | None = None
    interface: Interface | None = None
    primary_output: Text | None = None


Checks = Mapping[str, tuple[Assertion, ...]]


@dataclass(frozen=True)
class WorkflowDefinition:
    """A whole workflow; `checks` are the assertions of its blocks, `tools` are by id."""

    blocks: Mapping[str, Block]
    souls: Mapping[str, Soul] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    limits: Caps | None = None
    primary_output: str | None = None
    inputs: Mapping[str, WorkflowInput] = NOTHING
    interface: Interface = field(default_factory=Interface)
    default_model: str | None = None
    tools: Mapping[str, SoulTool] = NOTHING
    name: str = "workflow"
    checks: Checks = NOTHING

    def tools_of(self, soul: Soul) -> dict[str, SoulTool]:
        """Return the tools that a soul may call, by the name that the model uses."""
        tools = [self.tools[name] for name in soul.tools or () if name in self.tools]
        return {tool.name: tool for tool in tools}

    @property
    def entry(self) -> str:
        """The block that comes first."""
        return next(iter(self.blocks)) if self.graph.entry is None else self.graph.entry

    @cached_property
    def plain(self) -> dict[str, str | None]:
        """The plain transitions, those that `depends` stands for among them; None is the end."""
        plain = {edge.source: self.end(edge.to) for edge in self.graph.transitions or ()}
        for before, followers in followers_of(self.blocks).items():
            plain.setdefault(before, followers[0])
        return plain

    @cached_property
    def conditional(self) -> dict[str, dict[str, str | None]]:
        """Where the decisions of each block lead."""
        edges: dict[str, dict[str, str | None]] = {}
        for edge in self.graph.conditional_transitions or ():
            ways = {decision: self.end(to) for decision, to in edge.edges.items()}
            edges.setdefault(edge.source, {}).update(ways)
        return edges

    @cached_property
    def upstream(self) -> dict[str, set[str]]:
        """The blocks that may have run before each block; those of a loop run after each other."""
        ways: dict[str, set[str]] = {name: set() for name in self.blocks}
        for name, block in self.blocks.items():
            goes = [self.plain.get(name), *self.conditional.get(name, {}).values()]
            goes += [block.error_route, *(self.end(branch.goto) for branch in block.branches)]
            inner = [each for each in getattr(block, "inner_block_refs", ()) if each in ways]
            ways[name].update(to for to in (*goes, *inner) if to in ways)
            for each in inner:
                ways[each].update(inner, (name,))
        before: dict[str, set[str]] = {name: set() for name in self.blocks}
        for name in self.blocks:
            reached, ahead = before, [*ways[name]]
            while ahead:
                to = ahead.pop()
                if name not in reached[to]:
                    reached[to].add(name)
                    ahead += ways[to]
        return before

    def end(self, to: str | None) -> str | None:
        """Return where an edge leads: None for the end, which `END` stands for, too."""
        return None if to == END and END not in self.blocks else to


def source_of(written: str | InputSource) -> InputSource:
    """Return the source of an input; a text is its path."""
    if isinstance(written, InputSource):
        return written
    return InputSource.model_construct({"path"}, path=written)


def followers_of(blocks: Mapping[str, Block]) -> dict[str, list[str]]:
    """Return, by block, those that come next because they depend on it.

    One that also depends, directly or not, on another of them comes after that one instead.
    """
    needs = {name: block.required_blocks for name, block in blocks.items()}

    def reaches(name: str, before: str, passed: frozenset[str]) -> bool:
        return any(
            need == before or (need not in passed and reaches(need, before, passed | {need}))
            for need in needs.get(name, ())
        )

    followers: dict[str, list[str]] = {}
    for name, required in needs.items():
        for need in required:
            followers.setdefault(need, []).append(name)
    return {
        before: [
            name
            for name in names
            if not any(other != name and reaches(name, other, frozenset()) for other in names)
        ]
        or names[:1]
        for before, names in followers.items()
    }
