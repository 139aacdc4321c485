"""Checks on the tool calls of a conversation: which, in what order, with what arguments; skills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field, field_validator
from typing_extensions import TypedDict

from evalcore.checks.base import (
    AssertionValueError,
    Check,
    Reader,
    Subject,
    aspect,
    by_aspects,
    passing_score,
)
from evalcore.checks.json import NotJsonError, parse
from evalcore.jsonvalues import ABSENT, same_json, value_at
from evalcore.model.assertion import Verdict, blocked
from evalcore.model.evidence import Evidence
from evalcore.shapes import Declared, OrAbsent, Share, Text, Weight
from evalcore.wording import Loc, json_text, quote, shorten, value_text

NO_TRACE = "not measured: the target left no messages, so its tool calls are not known"
_ARGUMENTS = ("arguments", "input", "args")
_EXACT_SINCE: Final = 2  # of `model.suite.FILE_RULES`


class ToolCall(NamedTuple):
    """One tool call: name, arguments, milliseconds where those are known."""

    name: str
    arguments: Any
    duration_ms: float | None


def calls_of(evidence: Evidence) -> list[ToolCall] | None:
    """Return the tool calls in their order; None where the target says nothing of any.

    A target that answers with messages says all; one that left calls to a model did not call tools
    where its messages show none.
    """
    details = evidence.details
    if "messages" not in details and "calls" not in details:
        return None
    calls = []
    for raw in tool_calls_of(evidence):
        duration = raw.get("duration_ms")
        if isinstance(duration, bool) or not isinstance(duration, int | float):
            duration = None
        calls.append(ToolCall(name_of(raw), arguments_of(raw), duration))
    return calls


def name_of(call: Mapping[str, Any]) -> str:
    """Return the name of the tool that a call, as a message has it, calls."""
    return str(call.get("tool") or _function(call).get("name") or "")


def arguments_of(call: Mapping[str, Any]) -> Any:
    """Return the arguments of a call; those that a model wrote as JSON text are read."""
    inner = _function(call)
    arguments: Any = next((inner[key] for key in _ARGUMENTS if key in inner), {})
    return _read_arguments(arguments) if isinstance(arguments, str) else arguments


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    return function if isinstance(function, Mapping) else call


def _read_arguments(text: str) -> Any:
    """Return the arguments that a text holds as JSON, as models write them; else the text."""
    try:
        return parse(text)
    except NotJsonError:
        return text


_ARGS_MATCHES: Final = ("exact", "ignore", "subset", "superset")


def checked_args_match(value: Any) -> Any:
    """Return how arguments are compared; raise `ValueError` for an unknown way."""
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    if not is_list and value not in _ARGS_MATCHES:
        ways = ", ".join(_ARGS_MATCHES)
        raise AssertionValueError(f"'args_match' is one of {ways}, or a list of arguments' names")
    return value


class ExpectedCall(Declared):
    """One expected tool call; `args` are compared as `args_match` says."""

    tool: Text
    args: Any = None
    args_match: Annotated[Any, AfterValidator(checked_args_match)] = "exact"
    max_duration_ms: Weight | None = None
    # Of other tools' files; what a call returned is not compared.
    input: Any = Field(default=None, exclude=True)
    output: Any = Field(default=None, exclude=True)

    @field_validator("args")
    @classmethod
    def _check_args(cls, value: Any) -> Any:
        if not (value is None or value == "any" or isinstance(value, Mapping)):
            raise ValueError("'args' is a mapping of arguments, or 'any'")
        return value

    @property
    def written_match(self) -> dict[str, Any]:
        """How this call's own arguments are compared, if the file says it."""
        return {"args_match": self.args_match} if "args_match" in self.model_fields_set else {}

    @property
    def text(self) -> str:
        """The call as a report shows it."""
        if self.args in (None, "any"):
            return self.tool
        return f"{self.tool} {quote(json_text(self.args))}"

    def fits(self, call: ToolCall) -> bool:
        """Whether the call has this name and these arguments."""
        if self.tool != call.name:
            return False
        how, expected, actual = self.args_match, self.args, call.arguments
        if expected in (None, "any") or how == "ignore":
            return True
        if isinstance(how, list):
            if not isinstance(actual, Mapping) or not isinstance(expected, Mapping):
                return False
            return all(_same_field(expected, actual, path) for path in how)
        if how == "exact" or not isinstance(expected, Mapping) or not isinstance(actual, Mapping):
            return same_json(actual, expected)
        if how == "subset":
            return all(_same_at(actual, expected, key) for key in actual)
        return all(_same_at(expected, actual, key) for key in expected)


Mode = Literal["any_order", "in_order", "exact", "superset", "subset"]
Minimums = Annotated[dict[str, Annotated[int, Field(ge=0)]], Field(min_length=1)]


class ToolTrajectory(Check):
    """The tool calls are those that are `expected`; the score is the share of what holds.

    Blocked if the target does not say which tools it called.
    """

    nested: ClassVar[bool] = True

    mode: Mode
    minimums: OrAbsent[Minimums] = None
    expected: OrAbsent[list[ExpectedCall]] = None
    threshold: OrAbsent[Share] = None

    def __post_init__(self) -> None:
        """Refuse a mode without what it compares with."""
        if self.mode != "any_order" and self.minimums is not None:
            raise AssertionValueError("'minimums' belong to the mode any_order")
        if self.minimums is None and self.expected is None:
            parts = "'minimums' or 'expected'" if self.mode == "any_order" else "'expected'"
            raise AssertionValueError(f"mode {self.mode} needs {parts}")

    def check(self, subject: Subject) -> Verdict:
        """Compare the calls."""
        calls = calls_of(subject.evidence)
        if calls is None:
            return blocked(NO_TRACE)
        expected = self.expected or ()
        aspects = _minimums(self.minimums, calls) if self.minimums else []
        aspects += _compared(self.mode, expected, calls)
        # An empty list expects no call, which every trajectory keeps that may have more.
        aspects = aspects or [aspect("nothing is expected", True)]
        names = ", ".join(call.name for call in calls)
        return by_aspects(aspects, self.threshold, actual=f"called: {names or 'nothing'}")

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `tool-trajectory` means."""
        default = "exact" if reader.file_rules >= _EXACT_SINCE else "superset"
        general = checked_args_match(written.get("args_match", default))
        fields: dict[str, Any] = {
            key: written[key] for key in ("mode", "minimums") if key in written
        }
        if "expected" in written:
            fields["expected"] = [
                {**call.model_dump(exclude_unset=True), "args_match": general} | call.written_match
                for call in written["expected"]
            ]
        fields["threshold"] = passing_score(written)
        cls.from_stored(fields)
        return "tool-trajectory", fields

    @classmethod
    def idle_keys(cls, written: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
        """Return the keys of expected calls that are not compared."""
        for number, call in enumerate(written.get("expected", ())):
            for key in ("input", "output"):
                if key in call.model_fields_set:
                    reason = "only the arguments of a call are compared (`args`)"
                    yield ("expected", number, key), reason


class TrajectoryKeys(TypedDict, total=False):
    """The key of `tool-trajectory` that is no field: the default of the expected calls."""

    args_match: Any


def _minimums(minimums: Mapping[str, int], calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    counts = Counter(call.name for call in calls)
    return [
        aspect(f"{name} at least {least} times: {counts[name]}", counts[name] >= least)
        for name, least in minimums.items()
    ]


def _subset(expected: Sequence[ExpectedCall], calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Each call is one of the expected, which are an allow-list: any number of calls fit one."""
    if not calls:
        return [aspect("nothing else was called", True)]
    return [
        aspect(f"{call.name} is expected", True)
        if any(item.fits(call) for item in expected)
        else aspect(f"{call.name} is not expected", False)
        for call in calls
    ]


def _paired(expected: Sequence[ExpectedCall], calls: Sequence[ToolCall]) -> dict[int, int]:
    """Return which call stands for which expected one; as many as can be matched at once."""
    by_call: dict[int, int] = {}

    def pair(item: int, tried: set[int]) -> bool:
        for number, call in enumerate(calls):
            if number in tried or not expected[item].fits(call):
                continue
            tried.add(number)
            if number not in by_call or pair(by_call[number], tried):
                by_call[number] = item
                return True
        return False

    for item in range(len(expected)):
        pair(item, set())
    return {item: number for number, item in by_call.items()}


def _in_order(expected: Sequence[ExpectedCall], calls: Sequence[ToolCall]) -> dict[int, int]:
    """Return which call stands for which expected one, in this order, others between them allowed.

    As many as can be found in order: the longest common subsequence.
    """
    rows, columns = len(expected), len(calls)
    longest = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows - 1, -1, -1):
        for column in range(columns - 1, -1, -1):
            best = max(longest[row + 1][column], longest[row][column + 1])
            if expected[row].fits(calls[column]):
                best = max(best, longest[row + 1][column + 1] + 1)
            longest[row][column] = best
    pairs, column = {}, 0
    for row, item in enumerate(expected):
        for at in range(column, columns):
            if item.fits(calls[at]) and longest[row][column] == longest[row + 1][at + 1] + 1:
                pairs[row], column = at, at + 1
                break
    return pairs


def _exact(expected: Sequence[ExpectedCall], calls: Sequence[ToolCall]) -> dict[int, int]:
    """Return which call stands for which expected one, each in its place."""
    pairs = zip(expected, calls, strict=False)
    return {number: number for number, (item, call) in enumerate(pairs) if item.fits(call)}


def _compared(
    mode: Mode, expected: Sequence[ExpectedCall], calls: Sequence[ToolCall]
) -> list[dict[str, Any]]:
    """Return an aspect for each expected call, or for each call of an allow-list."""
    if mode == "subset":
        return _subset(expected, calls)
    pair, how = _PAIRINGS[mode]
    pairs, aspects = pair(expected, calls), []
    for position, item in enumerate(expected):
        call = calls[pairs[position]] if position in pairs else None
        missing = _missing(item, calls, how.format(position + 1))
        aspects.extend(_call_aspects(item, call, missing))
    if mode == "exact":
        more = calls[len(expected) :]
        aspects.extend(aspect(f"{call.name} is not expected", False) for call in more)
        return aspects or [aspect("nothing was called", True)]
    return aspects


def _missing(item: ExpectedCall, calls: Sequence[ToolCall], how: str) -> str:
    """Return what an expected call lacks that no call stands for; `how` it should be called."""
    if any(item.fits(call) for call in calls):
        return f"{item.text} is not called {how}"
    if any(call.name == item.tool for call in calls):
        return f"{item.text} is called with other arguments"
    return f"{item.text} is not called"


def _call_aspects(
    expected: ExpectedCall, call: ToolCall | None, missing: str
) -> list[dict[str, Any]]:
    """Return whether the call is there and, if that is asked and known, whether it was quick."""
    if call is None:
        return [aspect(missing, False)]
    aspects = [aspect(f"{expected.text} is called", True)]
    most = expected.max_duration_ms
    if most is not None and call.duration_ms is not None:
        text = f"{expected.tool} took {call.duration_ms:g} ms, at most {most:g}"
        aspects.append(aspect(text, call.duration_ms <= most))
    return aspects


def _same_field(left: Mapping[str, Any], right: Mapping[str, Any], path: str) -> bool:
    """Whether both have the same at a path (`a.b[0].c`), or neither has anything there."""
    values = [value_at(arguments, path) for arguments in (left, right)]
    if ABSENT in values:
        return values[0] is values[1]
    return same_json(values[0], values[1])


def _same_at(left: Mapping[str, Any], right: Mapping[str, Any], key: str) -> bool:
    return key in left and key in right and same_json(left[key], right[key])


# How calls are matched with the expected ones, and how one is called that is not found.
_PAIRINGS: Final[Mapping[str, tuple[Callable[..., dict[int, int]], str]]] = {
    "any_order": (_paired, "often enough"),
    "in_order": (_in_order, "in this order"),
    "exact": (_exact, "as call {}"),
    "superset": (_paired, "often enough"),
}


_READS: Final = frozenset({"read", "readfile", "readtextfile", "viewfile", "view"})
_PATHS: Final = ("file_path", "path", "filePath")


class SkillTrigger(Check):
    """The agent used the `skill`, or did not if `should_trigger` is false.

    It used it if it called the tool `Skill` with that name, read a file below `skills/NAME/`, or a
    tool's output names such a file. Blocked if the target does not say which tools it called.
    """

    expected_field: ClassVar[str] = "skill"

    skill: str
    should_trigger: bool = True

    def check(self, subject: Subject) -> Verdict:
        """Look through the tool calls in their order."""
        if calls_of(subject.evidence) is None:
            return blocked(NO_TRACE)
        calls = tool_calls_of(subject.evidence)
        evidence = next((use for call in calls if (use := self._use_in(call))), None)
        text = evidence or f"{quote(self.skill)} in none of {len(calls)} tool calls"
        return by_aspects([aspect(text, (evidence is not None) is self.should_trigger)], None)

    def _use_in(self, call: Mapping[str, Any]) -> str | None:
        """Return how a tool call uses the skill; None if it does not."""
        name, arguments = name_of(call), arguments_of(call)
        texts: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
        folder = f"skills/{self.skill}/"
        bare = name.lower().replace("_", "").replace(" ", "").replace("-", "")
        if bare == "skill" and self.skill in str(texts.get("skill", "")):
            return f"{name} was called with {quote(str(texts['skill']))}"
        path = next((str(texts[key]) for key in _PATHS if texts.get(key)), "")
        if bare in _READS and folder in path:
            return f"{name} read {quote(shorten(path))}"
        output = call.get("output") or ""
        if folder in value_text(output):
            return f"the output of {name} names a file of {quote(self.skill)}"
        return None


def tool_calls_of(evidence: Evidence) -> Sequence[Mapping[str, Any]]:
    """Return the tool calls of the conversation, in their order."""
    return [
        call
        for message in evidence.details.get("messages") or ()
        if isinstance(message, Mapping)
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping)
    ]
