"""The check that a program makes: JSON on its standard input, JSON on its output."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from pydantic import Discriminator, Field, Tag
from typing_extensions import TypedDict

from evalcore.checks.base import AssertionValueError, Check, Reader
from evalcore.checks.graded import scored
from evalcore.checks.grader_calls import MAX_CALLS, GraderAccess, GraderCalls
from evalcore.checks.grader_environment import environment_of, with_values
from evalcore.checks.grader_payload import OutputAs, payload_of
from evalcore.checks.judge import passing_score
from evalcore.checks.metered_judges import MeteredJudges
from evalcore.checks.scale import Scale, share
from evalcore.checks.subject import Subject
from evalcore.declared.types import Count, OrAbsent, Share, Text, TextOrTexts
from evalcore.errors import EvalError
from evalcore.jsonvalues import decoded, parse
from evalcore.mistakes.foreign_text import one_line
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.trust.secret_options import secret_options
from evalcore.trust.text import last_words, tail_line

DEFAULT_TIMEOUT_MS: Final = 60_000.0
_OUTPUT_LIMIT: Final = 8 << 20
Duration = Annotated[float, Field(gt=0)]


class Graded(NamedTuple):
    """What a program answered."""

    score: float
    aspects: tuple[Mapping[str, Any], ...]
    details: Any
    reasoning: str


class Program(NamedTuple):
    """A program that grades, and how it is run."""

    command: str | list[str]
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    timeout_ms: float = DEFAULT_TIMEOUT_MS
    memory_mb: int | None = None


class CodeGrader(Check):
    """The program's score is at least `threshold` (0.8).

    An exit code other than 0, no JSON, a score that is not in [0, 1] and a time-out are errors that
    show the reason that it gave, or the end of what it wrote.
    """

    omitted: ClassVar[frozenset[str]] = frozenset({"output_as", "max_calls", "targets"})
    others_in: ClassVar[str | None] = "config"
    measure_scale: ClassVar[Scale] = share("the score")

    command: TextOrTexts
    cwd: OrAbsent[Text] = None
    config: OrAbsent[dict[str, Any]] = None
    timeout_ms: Duration = DEFAULT_TIMEOUT_MS
    env: OrAbsent[dict[str, str]] = None
    memory_mb: OrAbsent[Count] = None
    threshold: OrAbsent[Share] = None
    output_as: OutputAs = "text"
    max_calls: OrAbsent[Annotated[int, Field(ge=0)]] = None
    targets: OrAbsent[list[Text]] = None

    async def check(self, subject: Subject) -> Verdict:
        """Run the program; its score is graded."""
        program = Program(self.command, self.cwd, self.env, self.timeout_ms, self.memory_mb)
        payload = payload_of(self.config, subject, self.output_as)
        if self.max_calls is None:
            return self._graded(await run_grader(program, payload, subject))
        judges = MeteredJudges(subject.context.judges)
        access = GraderAccess(self.max_calls, tuple(self.targets or ()))
        calls = GraderCalls(access, judges)
        async with calls.variables() as variables:
            answer = await run_grader(program, payload, subject, variables)
        if calls.skipped is not None:
            raise calls.skipped
        return judges.on(_with_unknown(self._graded(answer), list(calls.unknown)))

    def _graded(self, answer: Graded | Verdict) -> Verdict:
        if isinstance(answer, Verdict):
            return answer
        message = one_line(answer.reasoning)
        verdict = scored(answer.score, self.threshold, answer.aspects, message=message)
        details = dict(verdict.details or {})
        if answer.details is not None:
            details["details"] = answer.details
        if answer.reasoning:
            details["reasoning"] = answer.reasoning
        return verdict._replace(details=details or None)

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `code-grader` means."""
        fields = {key: written[key] for key in _FIELDS if key in written}
        for key, other in (("command", "script"), ("timeout_ms", "timeout")):
            if (key in written) and (other in written):
                raise AssertionValueError(f"'{key}' and '{other}' are both given; keep one")
        if "script" in written:
            fields["command"] = written["script"]
        if "command" not in fields:
            raise AssertionValueError("'command' is required: the program that grades", "command")
        if "timeout" in written:
            fields["timeout_ms"] = written["timeout"] * 1000
        for option in secret_options({"env": fields.get("env")}):
            if option.is_literal:
                raise AssertionValueError(
                    f"'{option.name}' holds a secret as it is, which would be stored; write "
                    f"${{{{ {option.path[-1]} }}}} and set that variable"
                )
        if "threshold" in written:  # AgentV's graders read it there
            fields["config"] = {"threshold": written["threshold"], **(fields.get("config") or {})}
        fields |= _access(written.get("target"), reader)
        if fields.get("output_as", _output_as(reader)) == "messages":
            fields["output_as"] = "messages"
        return "code-grader", {**fields, "threshold": passing_score(written)}


def _with_unknown(verdict: Verdict, targets: list[str]) -> Verdict:
    """Return the verdict; one that is none or has failed says which targets it could not ask."""
    if not targets:
        return verdict
    details = {**(verdict.details or {}), "unknown_targets": targets}
    if verdict.outcome is Outcome.PASSED:
        return verdict._replace(details=details)
    names = ", ".join(f"'{name}'" for name in targets)
    note = f"the grader may not ask {names}; name it in `target.targets`"
    message = one_line(f"{note}; {verdict.message}" if verdict.message else note)
    return verdict._replace(message=message, details=details)


# The fields that stand in files under their own names.
_FIELDS: Final = ("command", "cwd", "config", "timeout_ms", "env", "memory_mb", "output_as")


def _access(target: Any, reader: Reader) -> dict[str, Any]:
    """Return the fields that say which models the program may call, and take those as judges."""
    if target is None or target is False:
        return {}
    written = {} if target is True else target
    reader.use_judges(written.get("targets", []), "target", "targets")
    models = written["targets"] if "targets" in written else reader.use_models()
    # The judge is called so.
    names = [name for name in models if name != "default"]
    named = {"targets": names} if names else {}
    return {"max_calls": written.get("max_calls", MAX_CALLS), **named}


def _output_as(reader: Reader) -> OutputAs:
    """Return how the SDK that is installed for the suite reads `output`."""
    version = reader.installed_version(_SDKS)
    numbers = [] if version is None else re.findall(r"\d+", version)[:2]
    before = len(numbers) == 2 and (int(numbers[0]), int(numbers[1])) < _OUTPUT_IS_TEXT
    return "messages" if before else "text"


# Since v4.38 of AgentV `output` is the answer's text; before, it was the answer's messages.
_OUTPUT_IS_TEXT: Final = (4, 38)
_SDKS: Final = ("@agentv/eval", "@agentv/sdk", "agentv")


class ModelAccess(TypedDict, total=False):
    """How often the program may call models, and which targets beside the judge."""

    max_calls: Annotated[int, Field(ge=0)]
    targets: list[Text]


class CodeGraderKeys(TypedDict, total=False):
    """The keys of `code-grader` that are no fields; `timeout` is in seconds."""

    command: TextOrTexts
    script: TextOrTexts
    timeout: Duration
    target: Annotated[
        Annotated[bool, Tag("<boolean>")] | Annotated[ModelAccess, Tag("<mapping>")],
        Discriminator(lambda value: "<boolean>" if isinstance(value, bool) else "<mapping>"),
    ]


async def run_grader(
    program: Program,
    payload: Mapping[str, Any],
    subject: Subject,
    variables: Mapping[str, str] | None = None,
) -> Graded | Verdict:
    """Return what the program answers to the payload, or the verdict that it failed.

    `variables` stand in its environment beside those of the program.
    """
    printed = await run_program(program, payload, subject, variables)
    if isinstance(printed, Verdict):
        return printed
    try:
        return read_answer(printed.text)
    except (ValueError, RecursionError) as error:
        return _failed(f"the grader's answer {error}", printed.tail)


class Printed(NamedTuple):
    """What a program wrote to standard output, and the end of what it wrote beside it."""

    text: str
    tail: str


async def run_program(
    program: Program,
    payload: Mapping[str, Any],
    subject: Subject,
    variables: Mapping[str, str] | None = None,
) -> Printed | Verdict:
    """Return what the program prints for the payload, or the verdict that it failed."""
    from evalcore.trust.commands import run_command

    timeout_s = program.timeout_ms / 1000
    try:
        subject.context.imports.check_command("the grader")
        environment = environment_of(program.env or {}, subject.context.folder)
        command = with_values(program.command, subject.context.folder)
        if payload.get("config") is not None:
            payload = {**payload, "config": with_values(payload["config"], subject.context.folder)}
    except EvalError as error:
        return broken(str(error))
    env = {**environment.variables, **(variables or {})}
    workspace = payload.get("workspace_path")
    if isinstance(workspace, str):
        env = {"EVALCORE_WORKSPACE": workspace, "AGENTV_WORKSPACE_PATH": workspace, **env}
    ended = await run_command(
        command,
        stdin=json.dumps(payload, ensure_ascii=False, default=str).encode("utf-8", "replace"),
        cwd=subject.context.folder / (program.cwd or ""),
        timeout_s=timeout_s,
        env=env,
        output_limit=_OUTPUT_LIMIT,
        memory_limit=None if program.memory_mb is None else program.memory_mb << 20,
    )
    printed = environment.clean(ended.stdout.decode(errors="replace"))
    tail = _reason(printed) if ended.exit_code else ""
    tail = tail or last_words(environment.clean(ended.stderr.decode(errors="replace")))
    if ended.exit_code and not tail:
        tail = last_words(printed)
    if ended.timed_out:
        return _failed(f"the grader took longer than {timeout_s:g} s", tail)
    if ended.exit_code < 0:
        return _failed(f"the grader was killed by signal {-ended.exit_code}", tail)
    if ended.exit_code:
        return _failed(f"the grader ended with exit code {ended.exit_code}", tail)
    return Printed(environment.clean(decoded(ended.stdout)), tail)


def read_answer(text: str) -> Graded:
    """Return the `{score, assertions, details}` that a program printed; raise `ValueError`."""
    try:
        value = parse(text)
    except ValueError:
        raise ValueError(f"is no JSON: {tail_line(text, 80)!r}") from None
    if not isinstance(value, dict):
        raise ValueError("is no JSON object {score, assertions, details}")
    score: Any = value.get("score")
    number = isinstance(score, int | float) and not isinstance(score, bool)
    if not number or not 0 <= score <= 1:
        raise ValueError(f"has no 'score' from 0 to 1, but {score!s:.40}")
    raw = value.get("assertions")
    if raw is not None and not (isinstance(raw, list) and all(map(_is_aspect, raw))):
        raise ValueError("has 'assertions' that are no list of {text, passed, evidence}")
    reasoning = value.get("reasoning")
    return Graded(
        float(score),
        tuple(_older_aspects(value) if raw is None else raw),
        value.get("details"),
        reasoning if isinstance(reasoning, str) else "",
    )


def _reason(printed: str) -> str:
    """Return why a program that failed says that it did, in the JSON of its standard output."""
    value: Any = None
    with suppress(ValueError):
        value = parse(printed)
    if not isinstance(value, dict):
        return ""
    aspects = value.get("assertions")
    for aspect in [*(aspects if isinstance(aspects, list) else ()), *_older_aspects(value)]:
        if _is_aspect(aspect) and not aspect["passed"]:
            return str(aspect["text"])
    reasoning = value.get("reasoning", value.get("error"))
    return reasoning if isinstance(reasoning, str) else ""


def _older_aspects(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what `hits` and `misses` say, which AgentV had before `assertions`."""
    aspects = []
    for key, passed in (("hits", True), ("misses", False)):
        texts = answer.get(key)
        for text in texts if isinstance(texts, list) else ():
            if isinstance(text, str):
                aspects.append({"text": text, "passed": passed})
    return aspects


def _is_aspect(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return False
    return isinstance(value.get("passed"), bool)


def _failed(what: str, tail: str) -> Verdict:
    return broken(one_line(f"{what}: {tail}" if tail else what))
