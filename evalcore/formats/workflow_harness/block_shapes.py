"""The whole shape of a workflow that has to run: inputs, routes, retries, limits, loops.

A file whose cases are given by fixtures is held only to the flat shapes of
`workflow_harness_shapes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Count, Text, Weight
from evalcore.formats.parts.shared_shapes import OPEN, STRICT
from evalcore.formats.workflow_harness.shapes import Soul
from evalcore.mistakes.shape_lookup import CALLABLE

Seconds = Annotated[float, Field(gt=0)]


def _text_or_mapping(value: object) -> str:
    return "<mapping>" if isinstance(value, dict) else "<text>"


def _flag_or_mapping(value: object) -> str:
    return "<mapping>" if isinstance(value, dict) else "<flag>"


_InputFrom = TypedDict("_InputFrom", {"from": Required[Text], "default": Any}, total=False)


@with_config(STRICT)
class InputShape(_InputFrom, total=False):
    """Where an input comes from: `block.path` or `workflow.x`."""


Input = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[InputShape, Tag("<mapping>")],
    Discriminator(_text_or_mapping),
]


@with_config(STRICT)
class ConditionShape(TypedDict, total=False):
    """One comparison."""

    eval_key: str
    operator: Required[Text]
    value: Any


@with_config(STRICT)
class GroupShape(TypedDict, total=False):
    """Comparisons of which all or one must hold."""

    combinator: Literal["and", "or"]
    conditions: Required[Annotated[list[ConditionShape], Field(min_length=1)]]


def _group_or_condition(value: object) -> str:
    return "<group>" if isinstance(value, dict) and "conditions" in value else "<condition>"


Conditions = Annotated[
    Annotated[GroupShape, Tag("<group>")] | Annotated[ConditionShape, Tag("<condition>")],
    Discriminator(_group_or_condition),
]


@with_config(STRICT)
class RouteShape(TypedDict, total=False):
    """A way on with its conditions, or the default one."""

    case: Text
    when: Conditions | None
    default: bool
    goto: Required[Text]


@with_config(STRICT)
class OutputConditionShape(TypedDict, total=False):
    """A decision with its conditions; a conditional transition (or `goto`) says where it leads."""

    case_id: Text
    case: Text
    condition_group: Conditions | None
    when: Conditions | None
    combinator: Literal["and", "or"]
    conditions: list[ConditionShape]
    eval_key: str
    operator: Text
    value: Any
    default: bool
    goto: Text


@with_config(STRICT)
class ExitConditionShape(TypedDict, total=False):
    """An exit handle with what the output has to contain, match or meet."""

    exit_handle: Required[Text]
    contains: str
    regex: str
    condition_group: Conditions | None
    when: Conditions | None
    eval_key: str
    operator: Text
    value: Any


@with_config(STRICT)
class RetryShape(TypedDict, total=False):
    """How often a block is tried; seconds."""

    max_attempts: Annotated[int, Field(ge=1, le=20)]
    backoff: Literal["fixed", "exponential"]
    backoff_base_seconds: Annotated[float, Field(ge=0, le=60)]
    non_retryable_errors: list[str] | None


@with_config(STRICT)
class CapsShape(TypedDict, total=False):
    """Bounds of a block or a workflow."""

    max_duration_seconds: Seconds | None
    cost_cap_usd: Weight | None
    token_cap: Count | None
    on_exceed: Literal["warn", "fail"]
    warn_at_pct: float


@with_config(STRICT)
class ExitShape(TypedDict, total=False):
    """An exit of a block; that of a dispatch has a soul and a task."""

    id: Required[Text]
    label: str | None
    soul_ref: str
    task: str


@with_config(STRICT)
class CarryShape(TypedDict, total=False):
    """What a loop carries from round to round."""

    enabled: bool
    mode: Literal["last", "all"]
    source_blocks: list[str] | None
    inject_as: Text


Carry = Annotated[
    Annotated[bool, Tag("<flag>")] | Annotated[CarryShape, Tag("<mapping>")],
    Discriminator(_flag_or_mapping),
]


@with_config(STRICT)
class _Executed(TypedDict, total=False):
    id: str
    description: str | None
    assertions: list[Any] | None
    inputs: dict[str, Input] | None
    depends: str | list[str]
    error_route: str | None
    outputs: dict[str, Any] | None
    timeout_seconds: Seconds
    retry_config: RetryShape | None
    output_conditions: list[OutputConditionShape] | None
    routes: list[RouteShape] | None
    exit_conditions: list[ExitConditionShape] | None
    exits: list[ExitShape] | None
    limits: CapsShape | None


@with_config(STRICT)
class ExecutedLlm(_Executed, total=False):
    """One model call from a prompt template."""

    type: Required[Literal["llm"]]
    soul_ref: str
    prompt_template: str


@with_config(STRICT)
class ExecutedLinear(_Executed, total=False):
    """One model call on the block's inputs."""

    type: Required[Literal["linear"]]
    soul_ref: str


_GateWays = TypedDict("_GateWays", {"pass": str | None, "fail": str | None}, total=False)


@with_config(STRICT)
class ExecutedGate(_Executed, _GateWays, total=False):
    """A model call whose first line decides the branch."""

    type: Required[Literal["gate"]]
    soul_ref: str
    eval_key: Text
    extract_field: Text


@with_config(STRICT)
class ExecutedSynthesize(_Executed, total=False):
    """Joins earlier outputs in one model call."""

    type: Required[Literal["synthesize"]]
    soul_ref: str
    input_block_ids: Annotated[list[str], Field(min_length=1)]


@with_config(STRICT)
class ExecutedDispatch(_Executed, total=False):
    """Parallel model calls, one per exit."""

    type: Required[Literal["dispatch"]]
    soul_ref: str


@with_config(STRICT)
class ExecutedCode(_Executed, total=False):
    """Python in a subprocess."""

    type: Required[Literal["code"]]
    code: Text
    callable: Annotated[str, Field(pattern=CALLABLE)]


@with_config(STRICT)
class ExecutedHttp(_Executed, total=False):
    """One HTTP request."""

    type: Required[Literal["http"]]
    method: str
    url: Required[Text]
    headers: dict[str, str]
    body: Any
    body_template: str
    timeout: Seconds


@with_config(STRICT)
class ExecutedLoop(_Executed, total=False):
    """Repeats other blocks."""

    type: Required[Literal["loop"]]
    inner_block_refs: Required[Annotated[list[str], Field(min_length=1)]]
    max_rounds: Annotated[int, Field(ge=1, le=1000)]
    break_condition: Conditions | None
    break_on_exit: Text
    retry_on_exit: Text
    carry_context: Carry | None


@with_config(STRICT)
class ExecutedWorkflow(_Executed, total=False):
    """A sub-workflow."""

    type: Required[Literal["workflow"]]
    workflow_ref: Required[Text]
    max_depth: Annotated[int, Field(ge=1, le=10)]
    on_error: Literal["raise", "catch"]


EXECUTED_BLOCKS: Mapping[str, Any] = {
    "llm": ExecutedLlm,
    "linear": ExecutedLinear,
    "gate": ExecutedGate,
    "synthesize": ExecutedSynthesize,
    "dispatch": ExecutedDispatch,
    "code": ExecutedCode,
    "http": ExecutedHttp,
    "loop": ExecutedLoop,
    "workflow": ExecutedWorkflow,
}

_Transition = TypedDict("_Transition", {"from": Required[Text], "to": str | None}, total=False)


@with_config(STRICT)
class TransitionShape(_Transition, total=False):
    """A plain transition; `to: null` is the end."""


_Conditional = TypedDict(
    "_Conditional", {"from": Required[Text], "default": NotRequired[str | None]}, total=False
)


@with_config(OPEN)
class ConditionalShape(_Conditional, total=False):
    """A conditional transition: the other keys are decisions, with where they lead."""


@with_config(OPEN)
class ExecutedGraph(TypedDict, total=False):
    """Entry and transitions."""

    name: str
    entry: Text
    transitions: list[TransitionShape] | None
    conditional_transitions: list[ConditionalShape] | None


@with_config(OPEN)
class ExecutedFile(TypedDict, total=False):
    """A workflow file but for its blocks."""

    souls: dict[str, Soul] | None
    workflow: ExecutedGraph | None
    limits: CapsShape | None
    primary_output: Text
