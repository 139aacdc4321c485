"""Checks on the evidence: what stands at a path, errors, nodes, and what was measured."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field

from evalcore.checks.base import (
    AssertionValueError,
    Check,
    Subject,
    aspect,
    by_aspects,
    passing_score,
)
from evalcore.checks.json import NotJsonError, TransformError, apply_transform, parse
from evalcore.checks.registry import load_check
from evalcore.checks.text import PatternCheck
from evalcore.checks.tools import calls_of
from evalcore.jsonvalues import PathSyntaxError, Resolved, same_json
from evalcore.model.assertion import PASSED, Outcome, Verdict, blocked, broken, failed
from evalcore.model.evidence import PRIMARY_PATH, Evidence, MissingPath, error_texts, find_value
from evalcore.model.scoring import is_below, reaches
from evalcore.shapes import OrAbsent, Share, Text, Weight
from evalcore.wording import QUOTED_LENGTH, counted, json_text, one_line, quote, shorten, value_text


class _PathCheck(Check):
    """A check on what stands at `path`, by default the primary output.

    Nothing at the path fails; under `negated` it is an error, because the opposite of what is not
    there is no pass.
    """

    omitted: ClassVar[frozenset[str]] = frozenset({"negated"})

    path: str | None = None
    negated: bool = False

    def find(self, subject: Subject) -> Resolved | Verdict:
        """Return what stands at the path, or the verdict on its absence."""
        try:
            value = find_value(subject.evidence, PRIMARY_PATH if self.path is None else self.path)
        except PathSyntaxError as error:
            return broken(str(error))
        if isinstance(value, MissingPath):
            if self.negated:
                return broken(str(value))
            return failed(str(value), actual="(missing)")
        return value


class OutputContains(_PathCheck):
    """`value` is in the text at `path`, or is a member of the list there.

    What is neither is taken as its JSON text.
    """

    value: Any

    def check(self, subject: Subject) -> Verdict:
        """Search what stands at the path."""
        value = self.find(subject)
        if isinstance(value, Verdict):
            return value
        sought = value_text(self.value)
        actual, members = value_text(value.value), value.value
        is_list = isinstance(members, list | tuple)
        is_member = is_list and any(same_json(member, self.value) for member in members)
        if is_member or sought in actual:
            return _passed(actual)
        return failed(f"does not contain {quote(sought)}", actual=actual)


class OutputEquals(_PathCheck):
    """What stands at `path` is `value`, deeply: 1 is 1.0, true is not 1.

    An output that is text is compared as JSON with a value that is none.
    """

    value: Any

    def check(self, subject: Subject) -> Verdict:
        """Compare what stands at the path."""
        value = self.find(subject)
        if isinstance(value, Verdict):
            return value
        value, expected, actual = value.value, self.value, value_text(value.value)
        is_output = self.path is None or self.path.startswith("output")
        if is_output and isinstance(value, str) and not isinstance(expected, str):
            try:
                value = parse(value)
            except NotJsonError as error:
                return failed(str(error), actual=actual)
        if same_json(value, expected):
            return _passed(actual)
        is_text = isinstance(expected, str)
        sought = quote(expected) if is_text else shorten(json_text(expected), QUOTED_LENGTH)
        other = "" if is_text or not isinstance(value, str) else f", but the text {quote(value)}"
        return failed(f"is not {sought}{other}", actual=actual)


class OutputMatches(PatternCheck, _PathCheck):
    """`pattern` (with `flags`, in `dialect`) matches somewhere in the text at `path`."""

    def check(self, subject: Subject) -> Verdict:
        """Search the text at the path."""
        value = self.find(subject)
        if isinstance(value, Verdict):
            return value
        text = value_text(value.value)
        verdict = self.match(text, subject.context.regex_timeout_s)
        return (
            verdict if verdict.outcome is Outcome.ERROR else verdict._replace(actual=shorten(text))
        )


class AtPath(_PathCheck):
    """The check `check` with the fields `params` holds of the text at `path`.

    `transform` is applied to that text. `value`, `values`, `pattern` and `threshold` repeat those
    of `params`.
    """

    omitted: ClassVar[frozenset[str]] = frozenset(
        {"negated", "value", "values", "pattern", "threshold"}
    )
    inner: str
    params: dict[str, Any]
    transform: str | None = None
    value: Any = None
    values: Any = None
    pattern: Any = None
    threshold: Any = None

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Return the check of these fields; `check` is the name of the inner one."""
        names = {"check": "inner"}
        return super().from_stored({names.get(key, key): stored[key] for key in stored})

    def check(self, subject: Subject) -> Verdict | Awaitable[Verdict]:
        """Make the inner check."""
        value = self.find(subject)
        if isinstance(value, Verdict):
            return value
        text = value_text(value.value)
        if self.transform is not None:
            try:
                text = apply_transform(self.transform, text)
            except TransformError as error:
                return broken(str(error))
        is_whole = self.path is None and self.transform is None

        def with_text(verdict: Verdict) -> Verdict:
            shown = is_whole or verdict.actual is not None
            return verdict if shown else verdict._replace(actual=shorten(text))

        async def later(verdict: Awaitable[Verdict]) -> Verdict:
            return with_text(await verdict)

        verdict = self.inner_check.check(subject._replace(output=text))
        return with_text(verdict) if isinstance(verdict, Verdict) else later(verdict)

    @property
    def inner_check(self) -> Check:
        """The check that is made on the text."""
        return load_check(self.inner, self.params)

    def expected_text(self) -> str | None:
        """Return what the inner check asks for."""
        return self.inner_check.expected_text()


def _passed(actual: str) -> Verdict:
    return Verdict(Outcome.PASSED, 1.0, actual=shorten(actual))


_NO_ERRORS = "no errors"
_NO_NODES = "it is not known which nodes ran: this answer came from no workflow"


class NoErrors(Check):
    """No model call and no block ended in an error."""

    def check(self, subject: Subject) -> Verdict:
        """Look for errors in the evidence."""
        errors = error_texts(subject.evidence)
        if not errors:
            return Verdict(Outcome.PASSED, 1.0, actual=_NO_ERRORS, expected=_NO_ERRORS)
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        message = one_line(f"{errors[0]}{more}")
        return failed(message, actual=counted(len(errors), "error"), expected=_NO_ERRORS)


class NodeExecuted(Check):
    """The node `node_id` ran."""

    node_id: Text

    def check(self, subject: Subject) -> Verdict:
        """Look for the node in the evidence."""
        counts = invocations(subject.evidence)
        if counts is None:
            return blocked(_NO_NODES)
        expected = f"{self.node_id} runs"
        ran = ", ".join(name for name, count in counts.items() if count) or "none"
        if counts.get(self.node_id, 0):
            return Verdict(Outcome.PASSED, 1.0, actual=ran, expected=expected)
        message = f"{quote(self.node_id)} did not run; ran: {ran}"
        return failed(message, actual=ran, expected=expected)


class NodeInvocations(Check):
    """The node `node_id` ran at most `max` times; never counts as 0 times."""

    node_id: Text
    max: Annotated[int, Field(ge=0)]

    def check(self, subject: Subject) -> Verdict:
        """Count the node's invocations."""
        counts = invocations(subject.evidence)
        if counts is None:
            return blocked(_NO_NODES)
        count = counts.get(self.node_id, 0)
        expected = f"{self.node_id} ≤ {self.max}"
        if count <= self.max:
            return Verdict(Outcome.PASSED, 1.0, actual=str(count), expected=expected)
        message = f"{quote(self.node_id)} ran {counted(count, 'time')}, at most {self.max} expected"
        return failed(message, actual=str(count), expected=expected)

    def expected_text(self) -> str:
        """Return the bound."""
        return f"max {self.max}"


def invocations(evidence: Evidence) -> Mapping[str, int] | None:
    """Return how often each node ran; None if the evidence does not say.

    Of evidence that has outputs alone (fixtures), each block with an output ran once.
    """
    counted = evidence.details.get("invocations")
    if isinstance(counted, Mapping):
        return counted
    return dict.fromkeys(evidence.outputs, 1) if evidence.outputs else None


NOT_MEASURED = "not measured"
_WORST = (Outcome.FAILED, Outcome.BLOCKED)


class _Maximum(Check):
    measure: ClassVar[str]
    unit: ClassVar[str] = " tokens"

    threshold: float

    def check(self, subject: Subject) -> Verdict:
        """Compare what was measured."""
        measured = getattr(subject.metrics, self.measure)
        if measured is None:
            return blocked(NOT_MEASURED)
        actual = f"{measured:.10g}{self.unit}"
        expected = f"≤ {self.threshold:.10g}{self.unit}"
        if not is_below(self.threshold, measured):
            return Verdict(Outcome.PASSED, 1.0, actual=actual, expected=expected)
        return failed(f"{actual}, expected {expected}", actual=actual, expected=expected)


class Cost(_Maximum):
    """The cost in US dollars is at most `threshold`; blocked if it was not measured."""

    measure: ClassVar[str] = "cost_usd"
    unit: ClassVar[str] = " USD"


class Latency(_Maximum):
    """The latency in milliseconds is at most `threshold`; blocked if it was not measured."""

    measure: ClassVar[str] = "latency_ms"
    unit: ClassVar[str] = " ms"


class TotalTokens(_Maximum):
    """Input and output tokens together are at most `threshold`.

    If only one of them was measured, that one alone may already be too many; else blocked.
    """

    measure: ClassVar[str] = "total_tokens"

    def check(self, subject: Subject) -> Verdict:
        """Compare the sum."""
        metrics, verdict = subject.metrics, super().check(subject)
        incomplete = None in {metrics.input_tokens, metrics.output_tokens}
        if verdict.outcome is Outcome.PASSED and incomplete:
            missing = "input" if metrics.input_tokens is None else "output"
            return blocked(f"{NOT_MEASURED}: {missing} tokens")
        return verdict


class InputTokens(_Maximum):
    """The input tokens are at most `threshold`; blocked if they were not measured."""

    measure: ClassVar[str] = "input_tokens"


class OutputTokens(_Maximum):
    """The output tokens are at most `threshold`; blocked if they were not measured."""

    measure: ClassVar[str] = "output_tokens"


class TokenMaxima(Check):
    """Tokens are at most `max_total`, `max_input` and `max_output`, those that are set.

    One that is too many fails; blocked if one of them was not measured and none is too many.
    """

    omitted: ClassVar[frozenset[str]] = frozenset({"max_input", "max_output"})

    max_total: OrAbsent[Weight] = None
    max_input: OrAbsent[Weight] = None
    max_output: OrAbsent[Weight] = None

    def check(self, subject: Subject) -> Verdict:
        """Compare each, the worst verdict counts."""
        maxima = (
            (TotalTokens, self.max_total),
            (InputTokens, self.max_input),
            (OutputTokens, self.max_output),
        )
        verdicts = [
            maximum.from_stored({"threshold": threshold}).check(subject)
            for maximum, threshold in maxima
            if threshold is not None
        ]
        for outcome in _WORST:
            for verdict in verdicts:
                if verdict.outcome is outcome:
                    return verdict
        actual = ", ".join(str(verdict.actual) for verdict in verdicts)
        return Verdict(Outcome.PASSED, 1.0, actual=actual)

    @classmethod
    def read(cls, written: Mapping[str, Any], _reader: object) -> tuple[str, dict[str, Any]]:
        """Return the check that `token-usage` means: of the sum alone, or of several maxima."""
        total = written.get("threshold", written.get("max_total"))
        maxima = {name: written[name] for name in ("max_input", "max_output") if name in written}
        if maxima:
            return "token-maxima", {"max_total": total, **maxima}
        if total is None:
            raise AssertionValueError("'threshold' is required: the most that is allowed")
        return "tokens", {"threshold": total}


class Unavailable(Check):
    """An assertion of a type that cannot be evaluated here is in error for `reason`."""

    reason: str

    def check(self, subject: Subject) -> Verdict:  # noqa: ARG002 - the signature of a check
        """Return the reason."""
        return broken(self.reason)


DEFAULT_TOLERANCE: Final = 0.2
MAXIMA: Final = {
    "max_tool_calls": "tool calls",
    "max_llm_calls": "model calls",
    "max_tokens": "tokens",
    "max_cost_usd": "USD",
    "max_duration_ms": "ms",
}
# Tools that only look, by what coding agents call them.
_LOOKING: Final = frozenset(
    {"read", "grep", "glob", "search", "list", "ls", "find", "view", "cat", "fetch", "get"}
)


class ExecutionMetrics(Check):
    """Each maximum that is set is kept; the score is the share of those that are.

    Blocked, with their names, if some of the measures were not taken.
    """

    max_tool_calls: Weight | None = None
    max_llm_calls: Weight | None = None
    max_tokens: Weight | None = None
    max_cost_usd: Weight | None = None
    max_duration_ms: Weight | None = None
    target_exploration_ratio: Share | None = None
    exploration_tolerance: Weight = DEFAULT_TOLERANCE
    threshold: Share | None = None

    def check(self, subject: Subject) -> Verdict:
        """Compare each measure."""
        measured = _measured(subject)
        names = [name for name in measured if getattr(self, name) is not None]
        missing = [name for name in names if measured[name] is None]
        if missing:
            return blocked(f"{NOT_MEASURED}: {', '.join(missing)}")
        aspects = [self._aspect(name, measured[name] or 0.0) for name in names]
        actual = ", ".join(
            f"{measured[name]:g} {MAXIMA.get(name, 'exploration')}" for name in names
        )
        return by_aspects(aspects, self.threshold, actual=actual)

    def _aspect(self, name: str, value: float) -> dict[str, Any]:
        bound: float = getattr(self, name)
        if name in MAXIMA:
            text = f"{value:g} {MAXIMA[name]}, at most {bound:g}"
            return aspect(text, not is_below(bound, value))
        tolerance = self.exploration_tolerance
        text = f"exploration {value:.2f}, expected {bound:g} ± {tolerance:g}"
        return aspect(text, reaches(tolerance, abs(value - bound)))

    @classmethod
    def read(cls, written: Mapping[str, Any], _reader: object) -> tuple[str, dict[str, Any]]:
        """Return the check that `execution-metrics` means."""
        names = cls.__annotations__.keys()
        fields = {key: value for key, value in written.items() if key in names}
        if not any(key.startswith(("max_", "target_")) for key in fields):
            raise AssertionValueError("checks nothing: give at least one maximum")
        return "execution-metrics", {**fields, "threshold": passing_score(written)}


def _measured(subject: Subject) -> dict[str, float | None]:
    details, metrics = subject.evidence.details, subject.metrics
    calls = calls_of(subject.evidence)
    models = details.get("calls")
    if models is None and "messages" in details:
        models = [message for message in details["messages"] if message.get("role") == "assistant"]
    looking = [call for call in calls or () if _looks(call.name)]
    complete = None not in {metrics.input_tokens, metrics.output_tokens}
    return {
        "max_tool_calls": None if calls is None else len(calls),
        "max_llm_calls": None if models is None else len(models),
        "max_tokens": metrics.total_tokens if complete else None,
        "max_cost_usd": metrics.cost_usd,
        "max_duration_ms": metrics.latency_ms,
        "target_exploration_ratio": len(looking) / len(calls) if calls else None,
    }


def _looks(name: str) -> bool:
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    parts = words.replace("_", " ").replace("-", " ").split()
    return bool(parts) and (parts[0] in _LOOKING or "".join(parts) in _LOOKING)


class ScriptScore(Check):
    """The score of the statements reaches the case's threshold; the message holds the warnings."""

    def check(self, subject: Subject) -> Verdict:
        """Read the score from the evidence."""
        details = subject.evidence.details
        score = details.get("score")
        if not isinstance(score, int | float):
            return broken("the evidence has no score: it is not of a script suite")
        threshold = subject.case.threshold
        passed = reaches(score, 1.0 if threshold is None else threshold)
        message = "; ".join(details.get("warnings", ()))
        if passed and score == 1.0 and not message:
            return PASSED  # which many tests share
        return Verdict(Outcome.PASSED if passed else Outcome.FAILED, float(score), message)
