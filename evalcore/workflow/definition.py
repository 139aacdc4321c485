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

from pydantic import Discriminator, Field, GetJsonSchemaHandler, Tag, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from evalcore.model.assertion import Assertion
from evalcore.model.evidence import NOTHING
from evalcore.shapes import Count, Declared, Listed, NonEmpty, Seconds, Text, Weight
from evalcore.wording import suggest

if TYPE_CHECKING:
    from evalcore.workflow.context import Context


class WorkflowPart(Declared, alias_generator=None):
    """A mapping in a workflow file; its keys are written in snake_case only.

    Null is the absence of a key that has a default. `synonyms` are other names of keys.
    """

    synonyms: ClassVar[Mapping[str, str]] = NOTHING

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        if not isinstance(written, dict):
            return written
        read = dict(written)
        for synonym in cls.synonyms.keys() & read.keys():
            read.setdefault(cls.synonyms[synonym], read.pop(synonym))
        if None in read.values():
            for key in cls._keys_with_default():
                if read.get(key, "") is None:
                    del read[key]
        return read

    @classmethod
    def _keys_with_default(cls) -> list[str]:
        """Return the keys whose default is another value than null."""
        return [
            field.alias or name
            for name, field in cls.model_fields.items()
            if not field.is_required() and field.get_default() is not None
        ]

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema in which keys with a default may be null."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for key in cls._keys_with_default():
            if key in properties:
                properties[key] = {"anyOf": [properties[key], {"type": "null"}]}
        for synonym, key in cls.synonyms.items():
            if key in properties:
                properties[synonym] = properties[key]
        return schema


class Retry(WorkflowPart):
    """How often a block is tried; seconds."""

    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3
    backoff: Literal["fixed", "exponential"] = "fixed"
    backoff_base_seconds: Annotated[float, Field(ge=0, le=60)] = 1.0
    non_retryable_errors: Listed[str] | None = None

    def wait_s(self, attempt: int) -> float:
        """Return the seconds between attempt `attempt` (from 1) and the next one."""
        exponential = self.backoff == "exponential"
        return self.backoff_base_seconds * (2 ** (attempt - 1) if exponential else 1)


class Caps(WorkflowPart):
    """Bounds of a block or a workflow; `on_exceed: warn` records an event and goes on."""

    max_duration_seconds: Seconds | None = None
    cost_cap_usd: Weight | None = None
    token_cap: Count | None = None
    on_exceed: Literal["warn", "fail"] = "fail"
    warn_at_pct: float | None = None

    @property
    def warns(self) -> bool:
        """Whether a passed bound is only recorded."""
        return self.on_exceed == "warn"


class BlockCondition(WorkflowPart):
    """One comparison of what stands at `eval_key` in an output (the whole output without one)."""

    eval_key: str | None = None
    operator: Text
    value: Any = None


class ConditionGroup(WorkflowPart):
    """Conditions of which all (`and`) or one (`or`) must hold; an empty one holds."""

    combinator: Literal["and", "or"] = "and"
    conditions: NonEmpty[BlockCondition]


class WorkflowInput(WorkflowPart):
    """An input of a workflow: its type, and the value that it has where a case gives none."""

    type: Literal["string", "number", "boolean", "json", "array"] | None = None
    required: bool = True
    default: Any = None
    description: str | None = None
    sensitive: bool = False


class WorkflowConfig(WorkflowPart, extra="allow"):
    """Settings of a workflow: `model_name` is the model of souls that name none."""

    model_name: str | None = None


class Soul(WorkflowPart):
    """A persona: system prompt and model.

    What a variant or a stored plan adds are parameters of the model in OpenAI's names. Fields that
    are not stored have no effect.
    """

    synonyms: ClassVar[Mapping[str, str]] = MappingProxyType({"model": "model_name"})

    id: str = ""
    kind: str | None = Field(default=None, exclude=True)
    name: str | None = Field(default=None, exclude=True)
    role: str | None = Field(default=None, exclude=True)
    version: str | float | int | None = Field(default=None, exclude=True)
    description: str | None = Field(default=None, exclude=True)
    system_prompt: str | None = None
    provider: str | None = None
    model_name: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    tools: Any = Field(default=None, exclude=True)
    required_tool_calls: Any = Field(default=None, exclude=True)
    max_tool_iterations: Any = Field(default=None, exclude=True)
    avatar_color: str | None = Field(default=None, exclude=True)
    modified_at: str | None = Field(default=None, exclude=True)
    assertions: Any = Field(default=None, exclude=True)
    exits: Any = Field(default=None, exclude=True)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of its model."""
        own = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        parameters = {**own, **(self.model_extra or {})}
        return {name: value for name, value in parameters.items() if value is not None}


PARTS: Final = frozenset({"souls", "blocks", "workflow", "limits"})
SOUL_KEYS: Final = frozenset(
    {
        "model",
        "model_name",
        "provider",
        "system_prompt",
        "temperature",
        "max_tokens",
        "top_p",
        "seed",
        "stop",
        "frequency_penalty",
        "presence_penalty",
        "reasoning_effort",
    }
)
DEFAULT_SOUL: Final = "default"
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


class OutputCondition(WorkflowPart):
    """A decision with its conditions; a conditional transition (or `goto`) says where it leads."""

    synonyms: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"case_id": "case", "condition_group": "when"}
    )

    case: Text | None = None
    when: Conditions | None = None
    default: bool = False
    goto: Text | None = None

    @property
    def branch(self) -> Branch:
        """The decision as the engine follows it."""
        return Branch(self.case, None if self.default else group_of(self.when), self.goto)


class Route(OutputCondition):
    """A way on with its conditions, or the default one."""

    goto: Text


class ExitCondition(WorkflowPart):
    """An exit handle with what the output has to contain, match or meet."""

    synonyms: ClassVar[Mapping[str, str]] = MappingProxyType({"condition_group": "when"})

    exit_handle: Text
    contains: str | None = None
    regex: str | None = None
    when: Conditions | None = None


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
    stateful: Any = Field(default=None, exclude=True)
    stall_thresholds: Any = Field(default=None, exclude=True)
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
    primary_output: Text | None = None


Checks = Mapping[str, tuple[Assertion, ...]]


@dataclass(frozen=True)
class WorkflowDefinition:
    """A whole workflow; `checks` are the assertions of its blocks."""

    blocks: Mapping[str, Block]
    souls: Mapping[str, Soul] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    limits: Caps | None = None
    primary_output: str | None = None
    inputs: Mapping[str, WorkflowInput] = NOTHING
    default_model: str | None = None
    name: str = "workflow"
    checks: Checks = NOTHING

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


Loc = tuple[str | int, ...]


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
        if head.partition(".")[0] == "workflow" or head.startswith("__"):
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


def apply_variant(raw: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return the workflow with the variant laid over it.

    `souls`, `blocks`, `workflow` and `limits` are merged key by key, lists and values replaced; a
    soul's field (`model`, `provider`, `system_prompt`, `temperature`, …) is set in every soul.
    """
    merged = dict(raw)
    for key in PARTS & set(variant):
        merged[key] = merge(raw.get(key) or {}, variant[key])
    fields = soul_fields(variant)
    if fields:
        fields = {"model_name" if key == "model" else key: fields[key] for key in fields}
        souls = {DEFAULT_SOUL: {}, **(merged.get("souls") or {})}
        merged["souls"] = {name: {**soul, **fields} for name, soul in souls.items()}
    return merged


def soul_fields(variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a variant that is meant for every soul, of sub-workflows too."""
    return {key: value for key, value in variant.items() if key in SOUL_KEYS}


def merge(base: Any, over: Any) -> Any:
    """Return `over` laid over `base`: mappings key by key, anything else replaced."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return over
    return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}}
