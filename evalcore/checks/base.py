"""The base of every check: declared fields, and a method that gives the verdict."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from math import fsum
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    dataclass_transform,
)

from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.judging.asking import NO_JUDGES, Embedded, JudgeAnswer, Judges, JudgeSpec, added
from evalcore.model.assertion import Assertion, AssertionResult, Outcome, Verdict
from evalcore.model.evidence import NOTHING, Evidence, Metrics
from evalcore.model.exchange import Complete, no_provider
from evalcore.model.scoring import reaches
from evalcore.model.suite import Case
from evalcore.shapes import adapter, model_of
from evalcore.trust.imports import ImportPolicy
from evalcore.wording import LINE_LENGTH, Loc, json_text, one_line, quote, shorten

if TYPE_CHECKING:
    from evalcore.annotations.labels import LabelRecord


# Longer, and answers of providers would wait for the event loop.
_LONGEST_S = 0.003
_T = TypeVar("_T")


class GradingThread:
    """Runs in a thread what takes more than a few milliseconds, so that an event loop goes on.

    Created in the loop. One at a time: threads that compute take turns with the loop. `heavy` are
    the names of what is known to take long.
    """

    def __init__(self, heavy: Iterable[str] = ()) -> None:
        import asyncio

        self._slow = set(heavy)
        self._turn = asyncio.Lock()

    async def result(self, name: str, call: Callable[[], _T]) -> _T:
        """Return what a call gives; how long it takes is learnt by its `name`."""
        if name in self._slow:
            import asyncio

            async with self._turn:
                return await asyncio.to_thread(call)
        began = time.thread_time()
        value = call()
        if time.thread_time() - began > _LONGEST_S:
            self._slow.add(name)
        return value


def no_labels(_content: str) -> Sequence[LabelRecord]:
    """Return no label: of a check outside of any run."""
    return ()


Passed = tuple[Assertion, "Check", AssertionResult]
"""An assertion that passed on the output as it was, its check, and its result."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What belongs to the run rather than to the item.

    `folder` is the suite's folder (working directory of commands); `regex_timeout_s` bounds one
    search, `plugin_timeout_s` one call of foreign code. `objects` are what a suite made
    in Python refers to by name. `complete` calls providers for the item that is graded, `judges`
    asks its judges. `workspace` is the folder that the target worked in, if there was one.
    `absent_fields` are the fields that no case's expected output has; None where the cases are not
    known, as for an assertion on its own. `workers` run Python in processes of its own. `labels_of`
    returns what people said of a content (`model.annotation.content_key`). `thread`
    runs checks that take long where an event loop has others to serve. `passed` has assertions that
    passed, by the ids of their objects.
    """

    folder: Path
    imports: ImportPolicy
    regex_timeout_s: float = 2.0
    plugin_timeout_s: float = 30.0
    objects: Mapping[str, Any] = NOTHING
    complete: Complete = no_provider
    judges: Judges = NO_JUDGES
    workspace: Path | None = None
    absent_fields: frozenset[str] | None = None
    workers: Workers = NO_WORKERS
    labels_of: Callable[[str], Sequence[LabelRecord]] = no_labels
    thread: GradingThread | None = None
    passed: dict[int, Passed] = field(default_factory=dict)

    def lacks_field(self, path: str) -> bool:
        """Whether no case's expected output has the field."""
        return self.absent_fields is None or path in self.absent_fields


class Subject(NamedTuple):
    """The text under a check (the block's or the primary output, after its transform) and the rest.

    `metrics` are the block's where the assertion names a block, else the item's.
    """

    output: str
    metrics: Metrics
    evidence: Evidence
    case: Case
    context: CheckContext


def apply_negation(assertion: Assertion, verdict: Verdict) -> Verdict:
    """Return the verdict that the assertion asks for: with `negate` the opposite of a measured one.

    Blocked and error stay as they are, and so does a comparison of nothing: what was not measured
    has no opposite.
    """
    if not (assertion.negate and verdict.measured):
        return verdict
    match verdict.outcome:
        case Outcome.PASSED:
            from evalcore.checks.registry import load_check

            expected = (
                verdict.expected or load_check(assertion.check, assertion.params).expected_text()
            )
            what = assertion.check if expected is None else f"{assertion.check} {quote(expected)}"
            why = f": {verdict.message}" if verdict.message else ""
            return verdict._replace(
                outcome=Outcome.FAILED,
                score=1.0 - verdict.score,
                message=f"{what} holds, but must not{why}",
                expected=None if expected is None else f"not {expected}",
            )
        case Outcome.FAILED:
            details = verdict.details
            if details is not None and "failed_required" in details:
                details = {**details, "failed_required": []}
            score, passed = 1.0 - verdict.score, Outcome.PASSED
            return verdict._replace(
                outcome=passed, score=score, message="", expected=None, details=details
            )
        case _:
            return verdict


DEFAULT_THRESHOLD = 0.8
_MAX_LISTED = 5


def aspect(text: str, passed: bool, weight: float = 1.0) -> dict[str, Any]:
    """Return one aspect as results have it."""
    entry = {"text": text, "passed": passed}
    return entry if weight == 1.0 else {**entry, "weight": weight}


def by_aspects(
    aspects: Sequence[Mapping[str, Any]], threshold: float | None, *, actual: str | None = None
) -> Verdict:
    """Return the verdict with the weighted share of the aspects that hold as its score."""
    weights = [entry.get("weight", 1.0) for entry in aspects]
    total = fsum(weights)
    passed_weight = fsum(
        weight for entry, weight in zip(aspects, weights, strict=True) if entry["passed"]
    )
    score = passed_weight / total if total else 1.0
    return scored(score, threshold, aspects, actual=actual)


def scored(
    score: float,
    threshold: float | None,
    aspects: Sequence[Mapping[str, Any]] = (),
    *,
    actual: str | None = None,
    message: str = "",
) -> Verdict:
    """Return the verdict on a score: passed from `threshold` (0.8) on, else with a message."""
    least = DEFAULT_THRESHOLD if threshold is None else threshold
    reached = reaches(score, least)
    unmet = [entry["text"] for entry in aspects if not entry["passed"]]
    if not unmet and not reached:  # each holds, and the score is below all the same
        unmet = [entry["text"] for entry in aspects]
    parts = [f"score {score:.4g} < {least:g}"] if not reached else []
    parts.extend([message] if message else unmet[:_MAX_LISTED])
    if len(unmet) > _MAX_LISTED and not message:
        parts.append(f"and {len(unmet) - _MAX_LISTED} more")
    return Verdict(
        Outcome.PASSED if reached else Outcome.FAILED,
        score,
        one_line("; ".join(parts)),
        actual=actual,
        expected=f"≥ {least:g}",
        details={"assertions": [dict(entry) for entry in aspects]} if aspects else None,
    )


class AssertionValueError(ValueError):
    """An assertion has the right shape and is still wrong; the message says what would work.

    `loc` is the path of the mistake within the assertion.
    """

    def __init__(self, message: str, *loc: str | int) -> None:
        super().__init__(message)
        self.loc = loc


class Fault(NamedTuple):
    """What is wrong with a stored field, known without an output.

    `path` begins with the field's name.
    """

    path: Loc
    message: str


class Reader(Protocol):
    """What a function that reads an assertion may ask of the loader.

    Every method raises `AssertionValueError` with a path below the assertion.
    """

    @property
    def file_rules(self) -> int:
        """The rules by which the suite's file is read (`model.suite.FILE_RULES`)."""

    def parse_json(self, text: str, *loc: str | int) -> Any:
        """Return the value of a JSON text; NaN, infinities and duplicate keys are refused."""

    def validate(self, shape: Any, value: Any, *loc: str | int) -> Any:
        """Return the value, which stands at `loc`, as pydantic validates it."""

    def judges(self, written: Mapping[str, Any], *loc: str | int) -> list[dict[str, Any]]:
        """Return who judges by `judge`, `judges`, `model`, …, as `checks.judge.Judge` takes it."""

    def inline_judge(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the judge that a mapping `{provider, model, …}` describes."""

    def embedding(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return who embeds: the target that is named, or one called `embeddings`."""

    def prompt(self, written: str | None) -> str | None:
        """Return the text of a prompt, from its file if it names one."""

    def compare_fields(self, fields: Mapping[str, bool]) -> None:
        """Note fields that are compared with those of the expected output."""

    def use_judge(self, *loc: str | int) -> None:
        """Take the suite's judge; note that there is none."""

    def members(self, raw: Sequence[Any], *loc: str | int) -> list[Assertion]:
        """Return the assertions of a list at `loc`; those that are wrong are noted."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Check:
    """A check on the evidence. Its fields are what the plan stores of it as `Assertion.params`.

    A subclass is a frozen dataclass whose annotations pydantic validates; it is no pydantic model,
    because a run makes ten million checks and a model's attributes are read at a third of the
    speed. `expected_field` names the field that a report shows as what the output should have been.
    Fields in `omitted` are not stored while they have their default. `others_in` names the field, a
    mapping, that takes the keys of an assertion that its type does not know. The fields of a
    `nested` class are validated when they are read from a plan; those of any other are JSON values
    and are taken as they are. A check that is `of_text` looks at nothing but the output and the
    context.
    """

    expected_field: ClassVar[str] = "value"
    omitted: ClassVar[frozenset[str]] = frozenset()
    nested: ClassVar[bool] = False
    others_in: ClassVar[str | None] = None
    of_text: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Make the subclass a frozen dataclass."""
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Return the check of these fields, as `Assertion.params` has them.

        A nested class raises pydantic's `ValidationError` for fields that do not fit, and
        `ValueError` for fields that do not fit together.
        """
        if cls.nested:
            # Null stands where a key was left out.
            given = {name: value for name, value in stored.items() if value is not None}
            return cls(**vars(adapter(model_of(cls)).validate_python(given)))
        check = _new(cls)
        # The defaults are attributes of the class.
        _set_fields(check, stored)
        return check

    def check(self, subject: Subject) -> Verdict | Awaitable[Verdict]:
        """Return the verdict, or what it is awaited from."""
        raise NotImplementedError

    @classmethod
    def required_score(cls, _written: Mapping[str, Any]) -> float | None:
        """Return the score below which the item fails, of a type with a key `required` of its own.

        What is written has the shape of the type.
        """
        return None

    @classmethod
    def idle_keys(cls, _written: Mapping[str, Any]) -> Iterable[tuple[Loc, str]]:
        """Return what an assertion of a test file says without effect: paths, and the reasons.

        What is written has the shape of the type.
        """
        return ()

    def faults(self) -> Iterable[Fault]:
        """Return why the check cannot be made of any output, and what of it has no effect."""
        return ()

    def expected_text(self) -> str | None:
        """Return what the check asks for as a short text; None if it has no such value."""
        value = getattr(self, self.expected_field, None)
        if type(value) is str:
            return value if len(value) <= LINE_LENGTH else shorten(value)
        if value is not None or (self.expected_field == "value" and "value" in self.__dict__):
            return shorten(json_text(value))
        threshold = getattr(self, "threshold", None)
        return None if threshold is None else f"≤ {threshold}"


_new: Final = object.__new__
_set_fields: Final = Check.__dict__["__dict__"].__set__


def defaults(check: type[Any]) -> dict[str, Any]:
    """Return the defaults of those fields that have one."""
    return {
        each.name: each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(check)
        if each.default is not MISSING or each.default_factory is not MISSING
    }


def passing_score(written: Mapping[str, Any]) -> float | None:
    """Return the score from which a graded assertion passes; None if it says nothing."""
    for key in ("threshold", "required", "min_score"):
        value = written.get(key)
        if value is not None and not isinstance(value, bool):
            return float(value)
    return None


class MeteredJudges:
    """The judges, and what their answers took; also those of a check that came to no verdict."""

    def __init__(self, judges: Judges) -> None:
        self._judges = judges
        self.metrics: list[Metrics] = []
        self._unpriced: set[str] = set()

    async def ask(self, spec: JudgeSpec, question: Any) -> JudgeAnswer:
        """Return the reply; raise as `Judges.ask` does."""
        answer = await self._judges.ask(spec, question)
        self._note(answer)
        return answer

    async def embed(self, spec: JudgeSpec, texts: Sequence[str]) -> Embedded:
        """Return a vector for each text; raise as `Judges.embed` does."""
        embedded = await self._judges.embed(spec, texts)
        self._note(embedded)
        return embedded

    def _note(self, answer: JudgeAnswer | Embedded) -> None:
        self.metrics.append(answer.metrics)
        if answer.unpriced is not None:
            self._unpriced.add(answer.unpriced)

    def on(self, verdict: Verdict) -> Verdict:
        """Return the verdict with what the calls took."""
        if not self.metrics:
            return verdict
        total = added(self.metrics)
        usage = {"input": total.input_tokens, "output": total.output_tokens}
        details = {**(verdict.details or {}), "judge_calls": len(self.metrics)}
        if any(count is not None for count in usage.values()):
            details["token_usage"] = usage | total.usage_parts
        if self._unpriced:
            details["unpriced"] = sorted(self._unpriced)
        return verdict._replace(
            details=details, latency_ms=total.latency_ms, cost_usd=total.cost_usd
        )
