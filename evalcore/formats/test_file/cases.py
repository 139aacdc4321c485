"""One test of a test file → a case (docs/reference/test-files.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Required

from pydantic import Discriminator, Field, Tag, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.checks.criteria import Criteria
from evalcore.formats.assertions import AssertionReader
from evalcore.formats.graders import AssertionTemplates, Graders, ProgramAssertion
from evalcore.formats.messages import (
    InputOrigin,
    as_messages,
    check_file,
    check_messages,
    is_message,
    read_named_texts,
    read_reference,
    with_files,
    with_plain_messages,
)
from evalcore.formats.section import OPEN, STRICT, EvalcoreSection, MetricsShape, UniqueIds
from evalcore.formats.targets import Targets, TargetShape
from evalcore.formats.variables import Variables, interpolate
from evalcore.formats.warnings import CaseWarnings
from evalcore.formats.workspaces import WorkspaceReader, WorkspaceValue
from evalcore.judging.prompts import content_text, conversation_text
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import NOTHING, UNMEASURED, Evidence, Metrics
from evalcore.model.exchange import TRANSCRIPT, Turns, turn_block
from evalcore.model.suite import Case
from evalcore.problems import Problems
from evalcore.shapes import Count, IterationCount, Share, Text, Weight, adapter
from evalcore.wording import Loc, counted, suggest


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


def merged_metadata(own: Mapping[str, Any], suite: Mapping[str, Any]) -> dict[str, Any]:
    """Return a test's metadata with the suite's below it.

    Mappings are merged, lists have the suite's members first, each once; else the test's value.
    """
    merged = dict(own)
    for key, value in suite.items():
        mine = merged.get(key)
        if isinstance(value, Mapping) and isinstance(mine, Mapping):
            merged[key] = merged_metadata(mine, value)
        elif isinstance(value, list) and isinstance(mine, list):
            merged[key] = [*value, *(member for member in mine if member not in value)]
        elif key not in merged:
            merged[key] = value
    return merged


DEFAULT_GRADER: Final = {"type": "llm-grader"}
_NEEDS_TURNS: Final = ("mode", "aggregation", "on_turn_failure", "window_size")
TURN_KEYS: Final = frozenset({"turns", *_NEEDS_TURNS})
"""The keys of a test that `read_turns` reads."""
_LISTS: Final = ("assertions", "assert", "evaluators")


class GradedTurns(NamedTuple):
    """The turns of a test, their messages, and the assertions on each turn's answer."""

    turns: Turns
    messages: list[Any]
    assertions: list[Assertion]


def read_turns(
    test: TestShape, loc: Loc, problems: Problems, label: str, folder: Path, reader: AssertionReader
) -> GradedTurns | None:
    """Return the turns of a test, None if it has none; every mistake in them is noted."""
    listed = test.get("turns")
    if listed is None:
        for key in _NEEDS_TURNS:
            if key in test:
                problems.add((*loc, key), "has no effect without 'turns'", label=label)
        return None
    if "conversation" in test:
        message = "is given beside 'turns', which are a conversation; keep one of them"
        problems.add((*loc, "conversation"), message, label=label)
    messages: list[Any] = []
    assertions: list[Assertion] = []
    expected: list[Any] = []
    for index, turn in enumerate(listed):
        at = (*loc, "turns", index)
        origin = InputOrigin(folder, (*at, "input"), problems, label)
        messages.append(_question(turn, origin))
        reference = origin._replace(loc=(*at, "expected_output"))
        expected.append(read_reference(turn.get("expected_output"), reference))
        own = _assertions(turn, at, problems, label, reader)
        assertions += [assertion._replace(block=turn_block(index + 1)) for assertion in own]
    turns = Turns(
        total=len(listed),
        aggregation=test.get("aggregation", "mean"),
        window=test.get("window_size"),
        stops=test.get("on_turn_failure") == "stop",
        expected=tuple(expected),
    )
    return GradedTurns(turns, messages, assertions)


def _question(turn: TurnShape, origin: InputOrigin) -> Any:
    """Return the user message of a turn; files in it that are not there are noted."""
    written: Any = turn["input"]
    if isinstance(written, list):
        message = {"role": "user", "content": written}
        in_turn = Problems(origin.problems.file, origin.problems.locate)
        check_messages([message], origin._replace(problems=in_turn, loc=origin.loc[:-1]))
        origin.problems.include(in_turn.noted)
        return message
    return as_messages(written)[0]


def _assertions(
    turn: Mapping[str, Any], loc: Loc, problems: Problems, label: str, reader: AssertionReader
) -> list[Assertion]:
    """Return what checks a turn's answer; what is expected alone is for the default grader."""
    own: list[Assertion] = []
    is_graded = "expected_output" in turn
    for key in _LISTS:
        if key in turn:
            is_graded = False
            own += reader.read_all(turn[key], (*loc, key), problems, label)
    return own or (reader.read_all([DEFAULT_GRADER], loc, problems, label) if is_graded else [])


def on_transcript(assertions: Sequence[Assertion]) -> list[Assertion]:
    """Return assertions of the whole conversation."""
    return [assertion._replace(block=TRANSCRIPT) for assertion in assertions]


def with_answers(fixture: Evidence, messages: Sequence[Any], turns: Turns) -> Evidence | None:
    """Return a fixture as the evidence of turns, None if its messages do not answer each of them.

    `messages` are those of the case.
    """
    answers = [
        content_text(message.get("content"))
        for message in fixture.details.get("messages", ())
        if message.get("role") == "assistant"
    ]
    if len(answers) != turns.total:
        return None
    whole = list(messages[: len(messages) - turns.total])
    for question, answer in zip(messages[-turns.total :], answers, strict=True):
        whole += [question, {"role": "assistant", "content": answer}]
    outputs = {turn_block(number): answer for number, answer in enumerate(answers, 1)}
    return fixture._replace(outputs={**outputs, TRANSCRIPT: conversation_text(whole)})


# `${{ NAME }}` is a variable of the environment.
_REFERENCE: Final = re.compile(r"(?<!\$)\{\{\s*([A-Za-z_][A-Za-z0-9_.]*)\s*\}\}")
_FILLED: Final = ("criteria", "expected_outcome", "input", "input_files", "expected_output")
_FILLED_IN_TURNS: Final = ("input", "expected_output")


class CaseVariables:
    """Fills references to the variables of one test, those of its own texts."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def fill_test(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return a test with the references in its own texts replaced."""
        filled = {key: self.fill(raw[key]) for key in _FILLED if key in raw}
        turns = raw.get("turns")
        if isinstance(turns, list):
            filled["turns"] = [self._turn(turn) for turn in turns]
        return {**raw, **filled}

    def _turn(self, turn: Any) -> Any:
        if not isinstance(turn, dict):
            return turn
        return {**turn, **{key: self.fill(turn[key]) for key in _FILLED_IN_TURNS if key in turn}}

    def fill(self, value: Any) -> Any:
        """Return a value with the references in its texts replaced.

        A text that is one reference becomes the value itself. What no variable has stays: it may
        belong to another template language.
        """
        if isinstance(value, str):
            whole = _REFERENCE.fullmatch(value)
            if whole is not None:
                return self._value(whole[1], value)
            return _REFERENCE.sub(lambda match: _text(self._value(match[1], match[0])), value)
        if isinstance(value, dict):
            return {key: self.fill(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.fill(inner) for inner in value]
        return value

    def _value(self, path: str, default: str) -> Any:
        value: Any = self._values
        for name in path.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return default
            value = value[name]
        return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


UNUSED_CRITERIA: Final = (
    "criteria is defined but no evaluator in assertions will evaluate it. "
    "Add 'type: llm-grader' to assertions, or remove criteria if it is documentation-only."
)
NO_ANSWER = (
    "has nothing that answers it: give it `fixtures: {output: …}`, an `execution.target`, "
    "or the suite a target (`execution.target`, a target named 'default', --target NAME)"
)
NO_VARIANTS = (
    "chooses among the suite's `execution.targets`, and the suite has none; list the targets "
    "there, or name one `target` here"
)
NOTHING_TO_CHECK = (
    "needs one of 'assertions' (not empty), 'criteria' and 'expected_output', or nothing is checked"
)
EMPTY = "'assertions' is empty, so nothing is checked; remove it to be graded by 'criteria'"
_ALIASES: Final = (
    ("assert", "assertions"),
    ("evaluators", "assertions"),
    ("expected_outcome", "criteria"),
)


@dataclass(frozen=True, slots=True)
class SuiteDefaults:
    """What the suite level gives each test."""

    folder: Path
    targets: Targets
    graders: Graders
    assertions: tuple[Assertion, ...] = ()
    messages: tuple[Mapping[str, Any], ...] = ()
    input_files: tuple[str, ...] = ()
    threshold: float = 0.8
    has_target: bool = False
    forced_target: bool = False
    variant_targets: tuple[str, ...] = ()
    workspaces: WorkspaceReader | None = None
    skip: bool = False
    conversation: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    programs: Mapping[str, ProgramAssertion] = field(default_factory=dict)
    templates: AssertionTemplates | None = None
    notes: CaseWarnings | None = None


class TestReader:
    """Turns raw tests into cases; notes every mistake in them."""

    def __init__(
        self, defaults: SuiteDefaults, variables: Variables, *, strict: bool = False
    ) -> None:
        self.defaults = defaults
        self.variables = variables
        self.warnings = CaseWarnings(strict=strict)
        self.ids = UniqueIds("duplicate test id '{}'")
        self.assertions = AssertionReader(
            defaults.graders,
            notes=defaults.notes,
            programs=defaults.programs,
            templates=defaults.templates,
        )

    def read(self, raw: Any, loc: Loc, problems: Problems, *, marked: bool = True) -> Case | None:
        """Return the case of the test at `loc`, or note every mistake in it and return None.

        `marked` says whether `${{ … }}` in its text is a reference.
        """
        before = problems.count
        self.assertions.verbatim = not marked
        if marked:
            raw = interpolate(raw, self.variables, loc, problems)
            label = _label(raw.get("id")) if type(raw) is dict else ""
            origin = InputOrigin(self.defaults.folder, loc, problems, label)
            raw = read_named_texts(raw, origin)
        values = None
        if type(raw) is dict and isinstance(raw.get("vars"), dict):
            values = CaseVariables(raw["vars"])
            raw = values.fill_test(raw)
        test = self._checked(with_plain_messages(raw), loc, problems)
        if test is None:
            return None
        self.ids.note(test["id"], loc, problems)
        graded, label = None, _label(test["id"])
        self.warnings.add_replaced(label, loc, problems)
        if not TURN_KEYS.isdisjoint(test):
            folder = self.defaults.folder
            graded = read_turns(test, loc, problems, label, folder, self.assertions)
        assertions = self._assertions(test, loc, problems, graded, label)
        fixture = self._fixture(test)
        self._check_answer(test, fixture, loc, problems)
        if problems.count > before:
            return None
        case = self._case(test, assertions, fixture, loc, problems, values)
        if graded is not None:
            case = _with_turns(case, graded, (*loc, "fixtures"), problems, label)
        return case if problems.count == before else None

    def _checked(self, raw: Any, loc: Loc, problems: Problems) -> TestShape | None:
        """Return the validated test with the aliases resolved."""
        checked: Any
        try:
            checked = adapter(TestShape).validate_python(raw)
        except ValidationError as error:
            case_id = raw.get("id") if isinstance(raw, dict) else None
            problems.add_invalid(error, raw, TestShape, loc, label=_label(case_id))
            self.ids.note(case_id, loc, problems)
            self._note_assertions(raw, loc, problems)
            return None
        for alias, name in _ALIASES:
            if alias in checked:
                if name in checked:
                    message = f"is another name of '{name}'; keep one of them"
                    problems.add((*loc, alias), message, label=_label(checked["id"]))
                checked[name] = checked[alias]
        test: TestShape = checked
        return test

    def _note_assertions(self, raw: Any, loc: Loc, problems: Problems) -> None:
        """Note the mistakes in the assertions of a test that is wrong elsewhere."""
        for key in ("assertions", "assert", "evaluators") if isinstance(raw, dict) else ():
            if isinstance(raw.get(key), list):
                self.assertions.read_all(raw[key], (*loc, key), problems, _label(raw.get("id")))

    def _assertions(
        self, test: TestShape, loc: Loc, problems: Problems, graded: GradedTurns | None, label: str
    ) -> tuple[Assertion, ...]:
        """Return the assertions of turns, the test's, then the suite's; else the default grader."""
        before = problems.count
        own = self._own_assertions(test, loc, problems, label)
        if graded is not None:
            own = [*graded.assertions, *on_transcript(own)]
        criteria = test.get("criteria")
        if own:
            self._note_unused_criteria(test, own, loc, problems)
            return tuple(own)
        nothing = "assertions" in test or not (criteria or "expected_output" in test)
        if nothing and problems.count == before:
            is_graded = criteria and "assertions" in test
            problems.add(loc, EMPTY if is_graded else NOTHING_TO_CHECK, label=label)
        own = self.assertions.read_all([DEFAULT_GRADER], loc, problems, label)
        return tuple(own if graded is None else on_transcript(own))

    def _own_assertions(
        self, test: TestShape, loc: Loc, problems: Problems, label: str
    ) -> list[Assertion]:
        """Return the test's assertions, then the suite's."""
        execution: TestExecution = test.get("execution") or {}
        key = "assert" if "assert" in test else "assertions"
        key = "evaluators" if "evaluators" in test else key
        own = self.assertions.read_all(test.get("assertions"), (*loc, key), problems, label)
        if execution:
            for key in ("assertions", "evaluators"):
                inner = (*loc, "execution", key)
                own.extend(self.assertions.read_all(execution.get(key), inner, problems, label))
        if test.get("rubrics"):
            rubric = {"type": "rubrics", "criteria": test["rubrics"]}
            own.extend(self.assertions.read_all([rubric], (*loc, "rubrics"), problems, label))
        if not self.defaults.skip and not execution.get("skip_defaults"):
            own.extend(self.defaults.assertions)
        return own

    def _note_unused_criteria(
        self, test: TestShape, own: Sequence[Assertion], loc: Loc, problems: Problems
    ) -> None:
        if test.get("criteria") and not any(assertion.check in GRADERS for assertion in own):
            at, name = (*loc, "criteria"), f"Test '{test['id']}'"
            self.warnings.add(UNUSED_CRITERIA, at, problems, name=name)

    def _fixture(self, test: TestShape) -> Evidence | None:
        fixture = test.get("fixtures")
        if fixture is None:
            return None
        metrics = fixture.get("metrics")
        measured = Metrics(**metrics) if metrics else UNMEASURED
        messages: list[Any] = list(fixture.get("messages", ()))
        if "tool_calls" in fixture:
            calls = {"content": fixture["output"], "tool_calls": fixture["tool_calls"]}
            messages.append({"role": "assistant", **calls})
        details = {"messages": messages} if messages else NOTHING
        return Evidence(fixture["output"], metrics=measured, details=details)

    def _check_answer(
        self, test: TestShape, fixture: Evidence | None, loc: Loc, problems: Problems
    ) -> None:
        """Note a test that nothing answers, or whose target is unknown."""
        execution = test.get("execution") or {}
        name = execution.get("target")
        if "targets" in execution:
            self._check_targets(execution, (*loc, "execution"), problems, _label(test["id"]))
        if name is not None and not self.defaults.forced_target:
            self.defaults.targets.use(name, (*loc, "execution", "target"), problems)
        elif fixture is None and not self.defaults.has_target:
            problems.add(loc, NO_ANSWER, label=_label(test["id"]))

    def _targets(self, execution: TestExecution) -> tuple[str, ...]:
        return () if self.defaults.forced_target else tuple(execution["targets"])

    def _check_targets(
        self, execution: TestExecution, loc: Loc, problems: Problems, label: str
    ) -> None:
        """Note targets of a test that no variant of the suite has."""
        if "target" in execution:
            message = "is given beside 'target'; keep one of them"
            problems.add((*loc, "targets"), message, label=label)
            return
        names = self.defaults.variant_targets
        for index, name in enumerate(execution["targets"]):
            if not names and not self.defaults.forced_target:
                problems.add((*loc, "targets"), NO_VARIANTS, label=label)
                return
            if name not in names and not self.defaults.forced_target:
                message = f"'{name}' is no target of the suite's `execution.targets`"
                at = (*loc, "targets", index)
                problems.add(at, f"{message}.{suggest(name, names)}", label=label)

    def _case(
        self,
        test: TestShape,
        assertions: tuple[Assertion, ...],
        fixture: Evidence | None,
        loc: Loc,
        problems: Problems,
        values: CaseVariables | None,
    ) -> Case:
        execution = test.get("execution") or {}
        defaults = self.defaults
        threshold = execution.get("threshold")
        metadata: Mapping[str, Any] = test.get("metadata") or NOTHING
        if defaults.metadata:
            metadata = merged_metadata(metadata, defaults.metadata)
        if "conversation_id" in test:
            metadata = {**metadata, "conversation_id": test["conversation_id"]}
        return Case(
            id=test["id"],
            input=self._input(test, loc, problems, values),
            assertions=assertions,
            fixture=fixture,
            target=None if defaults.forced_target else execution.get("target"),
            threshold=defaults.threshold if threshold is None else threshold,
            expected_output=self._reference(test, loc, problems),
            criteria=test.get("criteria"),
            tags=tuple(test.get("tags", ())),
            metadata=metadata,
            workspace=self._workspace(test, loc, problems),
            conversation=test.get("conversation", defaults.conversation),
            targets=self._targets(execution) if "targets" in execution else (),
        )

    def _workspace(self, test: TestShape, loc: Loc, problems: Problems) -> Mapping[str, Any] | None:
        reader = self.defaults.workspaces
        if reader is None:
            return None
        return reader.of_test(test.get("workspace"), (*loc, "workspace"), problems)

    def _reference(self, test: TestShape, loc: Loc, problems: Problems) -> Any:
        value = test.get("expected_output")
        if not isinstance(value, list):
            return value
        at = (*loc, "expected_output")
        return read_reference(
            value, InputOrigin(self.defaults.folder, at, problems, _label(test["id"]))
        )

    def _input(
        self, test: TestShape, loc: Loc, problems: Problems, values: CaseVariables | None
    ) -> Any:
        """Return the test's input with the suite's messages before it and the files in it."""
        execution, defaults = test.get("execution") or {}, self.defaults
        skip = defaults.skip or execution.get("skip_defaults")
        files = test.get("input_files", () if skip else defaults.input_files)
        before = () if skip else defaults.messages
        own: Any = test["input"]
        if is_message(own):
            own = [own]
        if values is not None:
            files, before = values.fill(list(files)), values.fill(list(before))
        if not files and not before and not isinstance(own, list):
            return own
        origin = InputOrigin(defaults.folder, (*loc, "input"), problems, _label(test["id"]))
        check_messages(own, origin)
        for index, name in enumerate(test.get("input_files", () if values is None else files)):
            check_file(name, origin._replace(loc=(*loc, "input_files", index)))
        messages = [*before, *as_messages(own)]
        first = test.get("conversation", defaults.conversation)
        return with_files(messages, files, len(before), first=first)


def _with_turns(case: Case, graded: GradedTurns, loc: Loc, problems: Problems, label: str) -> Case:
    """Return a case whose turns follow its input, answered by its fixture if it has any."""
    messages = [*as_messages(case.input), *graded.messages]
    case = case._replace(input=messages, conversation=True, turns=graded.turns)
    if case.fixture is None:
        return case
    fixture = with_answers(case.fixture, messages, graded.turns)
    if fixture is None:
        answers = counted(graded.turns.total, "answer")
        problems.add(loc, f"'messages' has to hold {answers}, one for each turn", label=label)
    return case._replace(fixture=fixture)


def _label(case_id: object) -> str:
    return f"test '{case_id}'" if isinstance(case_id, str) else ""
