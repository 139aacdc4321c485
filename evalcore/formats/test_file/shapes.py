"""The foreign text of test files (docs/reference/test-files.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.checks.criteria import Criteria
from evalcore.formats.section import OPEN, STRICT, EvalcoreSection, MetricsShape
from evalcore.formats.targets import TargetShape
from evalcore.formats.workspaces import WorkspaceValue
from evalcore.shapes import Count, IterationCount, Share, Text, Weight


@with_config(OPEN)
class Segment(TypedDict, total=False):
    """A part of a message's content: a text, or the name of a file or an image."""

    type: Required[Literal["text", "file", "image"]]
    value: Required[str]


def _kind_of_content(value: object) -> str:
    if value is None:
        return "<nothing>"
    if isinstance(value, list):
        return "<segments>"
    return "<mapping>" if isinstance(value, dict) else "<text>"


@with_config(OPEN)
class Message(TypedDict, total=False):
    """One message; its content is text or a list of segments."""

    role: Required[Literal["system", "user", "assistant", "tool"]]
    content: Annotated[
        Annotated[str, Tag("<text>")]
        | Annotated[dict[str, Any], Tag("<mapping>")]
        | Annotated[list[Segment], Field(min_length=1), Tag("<segments>")]
        | Annotated[None, Tag("<nothing>")],
        Discriminator(_kind_of_content),
    ]


def _kind_of_input(value: object) -> str:
    if isinstance(value, list):
        return "<messages>"
    return "<mapping>" if isinstance(value, dict) else "<text>"


Input = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[dict[str, Any], Tag("<mapping>")]
    | Annotated[list[Message], Field(min_length=1), Tag("<messages>")],
    Discriminator(_kind_of_input),
]


TurnInput = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[dict[str, Any], Tag("<mapping>")]
    | Annotated[list[Segment], Field(min_length=1), Tag("<messages>")],
    Discriminator(_kind_of_input),
]


@with_config(STRICT)
class Trials(TypedDict, total=False):
    """Repetitions and how they become one score; `cost_limit_usd` bounds those of each test."""

    count: Required[IterationCount]
    cost_limit_usd: Weight
    strategy: Literal[
        "mean", "median", "pass_at_k", "pass_all_k", "at_least_k", "confidence_interval"
    ]
    k: Count


@with_config(STRICT)
class SuiteExecution(TypedDict, total=False):
    """How the suite runs."""

    target: Text
    targets: Annotated[list[Text], Field(min_length=1)]
    workers: Count
    threshold: Share
    skip_defaults: bool
    grader_target: Text
    conversation: bool
    trials: Trials
    total_budget_usd: Weight
    budget_usd: Weight
    fail_on_error: bool
    cache: bool
    assertions: list[Any]
    evaluators: list[Any]


@with_config(STRICT)
class TestExecution(TypedDict, total=False):
    """How one test runs."""

    target: Text
    targets: Annotated[list[Text], Field(min_length=1)]
    threshold: Share
    skip_defaults: bool
    assertions: list[Any]
    evaluators: list[Any]


@with_config(STRICT)
class TestFixture(TypedDict, total=False):
    """The target's answer, given: nothing is called."""

    output: Required[str]
    metrics: MetricsShape
    messages: list[Message]
    tool_calls: list[dict[str, Any]]


# `assert` is a keyword of Python.
_SuiteAlias = TypedDict("_SuiteAlias", {"assert": list[Any]}, total=False)


@with_config(STRICT)
class TurnShape(_SuiteAlias, total=False):
    """A turn of a conversation: what is asked, and what its answer is graded by."""

    input: Required[TurnInput]
    expected_output: Any
    assertions: list[Any]
    evaluators: list[Any]


# What AgentV once took for the grader of tests without assertions; it is the default.
DefaultGrader = Literal["llm-grader", "llm_grader", "llm-judge", "llm_judge"]


@with_config(STRICT)
class TestShape(_SuiteAlias, total=False):
    """One test: a message, what a good answer does, and assertions."""

    id: Required[Text]
    description: str
    suite: str
    vars: dict[str, Any]
    criteria: str
    expected_outcome: str
    input: Required[Input]
    input_files: list[Text]
    expected_output: Any
    execution: TestExecution
    workspace: WorkspaceValue
    metadata: dict[str, Any]
    rubrics: Criteria
    assertions: list[Any]
    evaluators: list[Any]
    conversation: bool
    conversation_id: str
    mode: Literal["conversation"]
    turns: Annotated[list[TurnShape], Field(min_length=1)]
    aggregation: Literal["mean", "min", "max"]
    on_turn_failure: Literal["continue", "stop"]
    window_size: Count
    tags: list[str]
    fixtures: TestFixture
    evaluator: DefaultGrader


@with_config(STRICT)
class TestSuite(_SuiteAlias, total=False):
    """The suite level of a test file."""

    name: Text
    description: str
    version: str | float | int
    author: Any
    license: Any
    requires: Any
    category: str
    suite: str
    dataset: str
    tags: list[str]
    metadata: dict[str, Any]
    evaluator: DefaultGrader
    evaluators: list[Any]
    target: Text
    input: Input
    input_files: list[Text]
    assertions: list[Any]
    execution: SuiteExecution
    workspace: WorkspaceValue
    targets: list[TargetShape]
    columns: dict[str, Text]
    evalcore: EvalcoreSection


TestItems = Annotated[list[TestShape | str], Field(min_length=1)] | str


@with_config(STRICT)
class TestFile(TestSuite, total=False):
    """A whole test file: `tests` is a list, or the path of a file or glob that holds them."""

    tests: TestItems
    eval_cases: TestItems
    evalcases: TestItems


GRADERS: tuple[str, ...] = ("llm-grader", "rubrics", "code-grader", "composite")
