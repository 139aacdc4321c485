"""Checks on what stands at a path of the evidence, such as `outputs.main.code`."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import Field

from evalcore.checks.base import Check, Subject
from evalcore.checks.json import NotJsonError, TransformError, apply_transform, parse
from evalcore.checks.registry import load_check
from evalcore.checks.text import PatternCheck
from evalcore.jsonvalues import PathSyntaxError, same_json
from evalcore.model.assertion import Outcome, Verdict, blocked, broken, failed
from evalcore.model.evidence import (
    PRIMARY_PATH,
    Evidence,
    MissingPath,
    error_texts,
    find_value,
)
from evalcore.shapes import Text
from evalcore.wording import (
    QUOTED_LENGTH,
    counted,
    json_text,
    one_line,
    quote,
    shorten,
    value_text,
)


class _Value(NamedTuple):
    value: Any

    @property
    def text(self) -> str:
        """The value, anything but text as JSON."""
        return value_text(self.value)


class _PathCheck(Check):
    """A check on what stands at `path`, by default the primary output.

    Nothing at the path fails; under `negated` it is an error, because the opposite of what is not
    there is no pass.
    """

    omitted: ClassVar[frozenset[str]] = frozenset({"negated"})

    path: str | None = None
    negated: bool = False

    def find(self, subject: Subject) -> _Value | Verdict:
        """Return what stands at the path, or the verdict on its absence."""
        try:
            value = find_value(subject.evidence, PRIMARY_PATH if self.path is None else self.path)
        except PathSyntaxError as error:
            return broken(str(error))
        if isinstance(value, MissingPath):
            if self.negated:
                return broken(str(value))
            return failed(str(value), actual="(missing)")
        return _Value(value.value)


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
        actual, members = value.text, value.value
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
        value, expected, actual = value.value, self.value, value.text
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
        verdict = self.match(value.text, subject.context.regex_timeout_s)
        if verdict.outcome is Outcome.ERROR:
            return verdict
        return verdict._replace(actual=shorten(value.text))


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
        text = self.text(subject)
        if isinstance(text, Verdict):
            return text
        verdict = self.inner_check.check(subject._replace(output=text))
        if isinstance(verdict, Verdict):
            return self.with_text(verdict, text)
        return self._later(verdict, text)

    async def _later(self, verdict: Awaitable[Verdict], text: str) -> Verdict:
        return self.with_text(await verdict, text)

    @property
    def inner_check(self) -> Check:
        """The check that is made on the text."""
        return load_check(self.inner, self.params)

    def text(self, subject: Subject) -> str | Verdict:
        """Return the text after its transform, or the verdict on its absence."""
        value = self.find(subject)
        if isinstance(value, Verdict):
            return value
        if self.transform is None:
            return value.text
        try:
            return apply_transform(self.transform, value.text)
        except TransformError as error:
            return broken(str(error))

    def with_text(self, verdict: Verdict, text: str) -> Verdict:
        """Return the verdict with the text that it is about, unless that is the whole output."""
        is_whole = self.path is None and self.transform is None
        if is_whole or verdict.actual is not None:
            return verdict
        return verdict._replace(actual=shorten(text))

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
