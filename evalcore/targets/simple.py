"""The targets that need no service: `echo`, `mock`, `fixture`, `replay`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evalcore.errors import EvalError, TargetError
from evalcore.jsonvalues import parse_storable
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.settings import repository_root
from evalcore.shapes import explain
from evalcore.targets.answers import evidence_in
from evalcore.targets.templates import with_template
from evalcore.targets.work import Answering, TargetOptions, Work
from evalcore.trust.files import resolve_inside
from evalcore.wording import counted, path_text, suggest

_NO_TIME: Final = Metrics(latency_ms=0.0)


class EchoOptions(TargetOptions):
    """Options of a target of kind `echo`."""

    prompt_template: str | None = Field(
        default=None, description="As of models: what a model would be asked is the answer."
    )


class EchoTarget(Answering):
    """Answers with the text of the last user message, or with the template. Its latency is 0."""

    def __init__(self, options: EchoOptions) -> None:
        self.options = options

    takes_time = False

    async def answer(self, work: Work) -> Evidence:
        """Return the prompt."""
        templated = with_template(work, self.options.prompt_template)
        return Evidence(output=templated.prompt, metrics=_NO_TIME)


class MockOptions(TargetOptions):
    """Options of a target of kind `mock`."""

    response: str = Field(description="The answer to every case, taken literally.")
    latency_ms: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="How long each answer takes, in milliseconds; also reported as its latency.",
    )


class MockTarget:
    """Answers with `response`; the latency that it reports is `latency_ms`."""

    def __init__(self, options: MockOptions) -> None:
        self._latency_s = options.latency_ms / 1000
        self._evidence = Evidence(
            output=options.response, metrics=Metrics(latency_ms=options.latency_ms)
        )

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return whether the answer takes its time."""
        return self._latency_s > 0

    async def answer(self, work: Work) -> Evidence:  # noqa: ARG002 - the protocol's parameter
        """Return the answer after its latency."""
        if self._latency_s:
            import asyncio

            await asyncio.sleep(self._latency_s)
        return self._evidence


class FixtureOptions(TargetOptions):
    """Options of a target of kind `fixture`: none."""


class FixtureTarget(Answering):
    """Answers from the case's fixture and from nothing else."""

    def __init__(self, options: FixtureOptions) -> None:
        self.options = options

    takes_time = False

    async def answer(self, work: Work) -> Evidence:
        """Return the case's fixture; raise `TargetError` of kind `fixture` if it has none."""
        if work.case.fixture is None:
            message = f"case '{work.case.id}' has no fixture, and its target answers from fixtures"
            raise TargetError("fixture", f"{message}; give the case `fixtures` or another target")
        return work.case.fixture


_KIND: Final = "replay"


class ReplayOptions(TargetOptions):
    """Options of a target of kind `replay`."""

    fixtures: str = Field(
        min_length=1, description="JSON lines with the answers, from the suite's folder."
    )
    source_target: str = Field(min_length=1, description="The target whose answers are meant.")
    suite: str | None = Field(default=None, description="The suite whose answers are meant.")
    eval_path: str | None = Field(default=None, description="The file of tests that is meant.")
    variant: str | None = Field(default=None, description="The variant that is meant.")


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, defer_build=True)

    test_id: str
    source_target: str
    output: Annotated[list[dict[str, Any]], Field(min_length=1)]
    suite: str | None = None
    eval_path: str | None = None
    attempt: int | None = None
    variant: str | None = None


class _Recorded(NamedTuple):
    """An answer, and the line that it stands in."""

    line: int
    record: _Record
    evidence: Evidence


class ReplayTarget(Answering):
    """Answers with what another target answered, from the JSON lines of `fixtures`."""

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options
        self._answers: dict[str, list[_Recorded]] | None = None

    takes_time = False

    async def answer(self, work: Work) -> Evidence:
        """Return the only answer to the test in this trial.

        Raises `TargetError` of kind `replay` if there is none or more than one.
        """
        if self._answers is None:
            self._answers = self._read(work.folder)
        name, options = work.case.id, self._options
        answers = [
            recorded
            for recorded in self._answers.get(name, ())
            if (recorded.record.attempt or 0) == work.iteration
        ]
        if len(answers) == 1:
            return answers[0].evidence
        if not answers:
            trial = f" in trial {work.iteration + 1}" if name in self._answers else ""
            hint = "" if trial else suggest(name, self._answers)
            message = f"no answer of '{options.source_target}' to test '{name}'{trial}"
            raise TargetError(_KIND, f"{options.fixtures} has {message}.{hint}")
        lines = ", ".join(str(recorded.line) for recorded in answers)
        message = f"has {counted(len(answers), 'answer')} to test '{name}' (lines {lines})"
        hint = "say which with `suite`, `eval_path` or `variant`"
        raise TargetError(_KIND, f"{options.fixtures} {message}; {hint}")

    def _read(self, folder: Path) -> dict[str, list[_Recorded]]:
        """Return the answers that are meant, by the ids of their tests."""
        answers: dict[str, list[_Recorded]] = {}
        try:
            path = fixtures_path(folder, self._options.fixtures)
            with path.open(encoding="utf-8-sig", newline="\n") as lines:
                for recorded in _recorded(lines, self._options.fixtures):
                    if self._is_meant(recorded.record):
                        answers.setdefault(recorded.record.test_id, []).append(recorded)
        except (EvalError, OSError, UnicodeDecodeError) as error:
            raise TargetError(_KIND, str(error)) from error
        return answers

    def _is_meant(self, record: _Record) -> bool:
        options, path = self._options, self._options.eval_path
        return (
            (record.source_target, record.variant) == (options.source_target, options.variant)
            and options.suite in (None, record.suite)
            and (path is None or _same_path(record.eval_path or "", path))
        )


def fixtures_path(folder: Path, name: str) -> Path:
    """Return the file of answers; raise `EvalError` if there is none within the repository."""
    return resolve_inside(repository_root(folder), folder, name)


def _recorded(lines: Iterator[str], file: str) -> Iterator[_Recorded]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _Recorded(number, *_read_record(line))
            except TargetError as error:
                raise TargetError(_KIND, f"{file}:{number}: {error}") from error


def _read_record(line: str) -> tuple[_Record, Evidence]:
    written: Any = None
    try:
        written = parse_storable(line)
        record = _Record.model_validate(written)
    except ValidationError as error:
        loc, message = next(iter(explain(error, written, _Record)))
        raise TargetError(_KIND, f"{path_text(loc)}: {message}" if loc else message) from error
    except ValueError as error:
        raise TargetError(_KIND, f"is no JSON: {error}") from error
    evidence = evidence_in(written, None)
    if evidence is None:
        raise TargetError(_KIND, "'output' has to be messages with a 'role'")
    return record, evidence


def _same_path(recorded: str, named: str) -> bool:
    ends = [f"/{path.replace(chr(92), '/').removeprefix('./')}" for path in (recorded, named)]
    return ends[0].endswith(ends[1]) or ends[1].endswith(ends[0])
