"""The check that a program makes: JSON on its standard input, JSON on its output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from evalcore.checks.base import AssertionValueError, Check
from evalcore.checks.graded import scored
from evalcore.checks.grader_environment import environment_of
from evalcore.checks.judge import passing_score
from evalcore.checks.material import tool_calls_of
from evalcore.checks.subject import Subject
from evalcore.declared.types import Count, OrAbsent, Share, Text, TextOrTexts
from evalcore.errors import EvalError
from evalcore.mistakes.foreign_text import one_line
from evalcore.model.assertion import Verdict, broken
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
    show the end of what it wrote to standard error.
    """

    command: TextOrTexts
    cwd: OrAbsent[Text] = None
    config: OrAbsent[dict[str, Any]] = None
    timeout_ms: Duration = DEFAULT_TIMEOUT_MS
    env: OrAbsent[dict[str, str]] = None
    memory_mb: OrAbsent[Count] = None
    threshold: OrAbsent[Share] = None

    async def check(self, subject: Subject) -> Verdict:
        """Run the program; its score is graded."""
        program = Program(self.command, self.cwd, self.env, self.timeout_ms, self.memory_mb)
        answer = await run_grader(program, payload_of(self.config, subject), subject)
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
    def read(cls, written: Mapping[str, Any], _reader: object) -> tuple[str, dict[str, Any]]:
        """Return the check that `code-grader` means."""
        names = {"timeout", *cls.__annotations__}
        fields = {key: value for key, value in written.items() if key in names}
        if "timeout" in fields and "timeout_ms" in fields:
            raise AssertionValueError("'timeout' (s) and 'timeout_ms' are both given; keep one")
        for option in secret_options({"env": fields.get("env")}):
            if option.is_literal:
                raise AssertionValueError(
                    f"'{option.name}' holds a secret as it is, which would be stored; write "
                    f"${{{{ {option.path[-1]} }}}} and set that variable"
                )
        if "timeout" in fields:
            fields["timeout_ms"] = fields.pop("timeout") * 1000
        return "code-grader", {**fields, "threshold": passing_score(written)}


class CodeGraderKeys(TypedDict, total=False):
    """The keys of `code-grader` that are no fields; `timeout` is in seconds."""

    timeout: Duration


def payload_of(config: Mapping[str, Any] | None, subject: Subject) -> dict[str, Any]:
    """Return what the program reads (docs/reference/graders.md, `code-grader`)."""
    case, evidence, metrics = subject.case, subject.evidence, subject.metrics
    details = evidence.details
    measured = (metrics.input_tokens, metrics.output_tokens)
    usage = {"input": measured[0], "output": measured[1]}
    return {
        "input": case.input,
        "output": subject.output,
        "output_messages": details.get("messages")
        or [{"role": "assistant", "content": subject.output}],
        "expected_output": case.expected_output,
        "criteria": case.criteria,
        "metadata": dict(case.metadata),
        "trace": {
            "calls": list(details.get("calls") or ()),
            "tool_calls": [dict(call) for call in tool_calls_of(evidence)],
            "errors": list(details.get("errors") or ()),
        },
        "token_usage": None if measured == (None, None) else usage,
        "cost_usd": metrics.cost_usd,
        "duration_ms": metrics.latency_ms,
        "workspace_path": _workspace_of(subject),
        "config": config,
    }


def _workspace_of(subject: Subject) -> str | None:
    """Return the folder that the target worked in, or the one that an earlier run left."""
    if subject.context.workspace is not None:
        return str(subject.context.workspace)
    left = subject.evidence.details.get("workspace")
    return left if isinstance(left, str) and Path(left).is_dir() else None


async def run_grader(
    program: Program, payload: Mapping[str, Any], subject: Subject
) -> Graded | Verdict:
    """Return what the program answers to the payload, or the verdict that it failed."""
    from evalcore.trust.commands import run_command

    timeout_s = program.timeout_ms / 1000
    try:
        subject.context.imports.check_command("the grader")
        environment = environment_of(program.env or {}, subject.context.folder)
    except EvalError as error:
        return broken(str(error))
    env = dict(environment.variables)
    workspace = payload.get("workspace_path")
    if isinstance(workspace, str):
        env.setdefault("EVALCORE_WORKSPACE", workspace)
    ended = await run_command(
        program.command,
        stdin=json.dumps(payload, ensure_ascii=False, default=str).encode("utf-8", "replace"),
        cwd=subject.context.folder / (program.cwd or ""),
        timeout_s=timeout_s,
        env=env,
        output_limit=_OUTPUT_LIMIT,
        memory_limit=None if program.memory_mb is None else program.memory_mb << 20,
    )
    tail = last_words(environment.clean(ended.stderr.decode(errors="replace")))
    if ended.timed_out:
        return _failed(f"the grader took longer than {timeout_s:g} s", tail)
    if ended.exit_code < 0:
        return _failed(f"the grader was killed by signal {-ended.exit_code}", tail)
    if ended.exit_code:
        return _failed(f"the grader ended with exit code {ended.exit_code}", tail)
    try:
        return read_answer(environment.clean(ended.stdout.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        return _failed(f"the grader's answer {error}", tail)


def read_answer(text: str) -> Graded:
    """Return the `{score, assertions, details}` that a program printed; raise `ValueError`."""
    try:
        value = json.loads(text)
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
        tuple(raw or ()),
        value.get("details"),
        reasoning if isinstance(reasoning, str) else "",
    )


def _is_aspect(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return False
    return isinstance(value.get("passed"), bool)


def _failed(what: str, tail: str) -> Verdict:
    return broken(one_line(f"{what}: {tail}" if tail else what))
