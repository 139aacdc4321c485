"""The check that a program makes: JSON on its standard input, JSON on its output."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from pydantic import Discriminator, Field, Tag
from typing_extensions import TypedDict

from evalcore.checks.base import (
    AssertionValueError,
    Check,
    MeteredJudges,
    Reader,
    Subject,
    passing_score,
    scored,
)
from evalcore.errors import EvalError, TargetError
from evalcore.jsonvalues import decoded, parse
from evalcore.judging.asking import JudgeAnswer, JudgeQuestion, Judges, JudgeSpec
from evalcore.judging.prompts import conversation_text, expected_text
from evalcore.model.assertion import Verdict, broken
from evalcore.model.evidence import NOTHING, Evidence, Metrics
from evalcore.model.exchange import SkippedError, message_array
from evalcore.redaction.redactor import PROCESS
from evalcore.shapes import Count, OrAbsent, Share, Text, TextOrTexts
from evalcore.trust.files import attached_paths, with_file_texts, with_files
from evalcore.trust.secrets import (
    MARK,
    secret_options,
    substituted,
    suite_variables,
    telling_values,
    variable_text,
)
from evalcore.trust.text import last_words, redact, tail_line
from evalcore.wording import one_line

MAX_CALLS: Final = 50
_DEFAULT: Final = "default"


class GraderCalls:
    """The calls that one run of a program makes.

    `skipped` says that a limit of the run ended them.
    """

    def __init__(self, max_calls: int | None, judges: Judges) -> None:
        self._allowed, self._max_calls, self._judges = max_calls is not None, max_calls or 0, judges
        self.count = 0
        self.skipped: SkippedError | None = None

    @asynccontextmanager
    async def variables(self) -> AsyncIterator[dict[str, str]]:
        """Serve calls until the block ends; the environment tells the program where."""
        if not self._allowed:
            yield {}
            return
        from evalcore.providers.http import loopback_server  # imports aiohttp

        answers = {
            "GET /info": self._info,
            "POST /invoke": self._invoke,
            "POST /invokeBatch": self._invoke_batch,
        }
        async with loopback_server(answers) as server:
            yield {
                "AGENTV_TARGET_PROXY_URL": server.url,
                "AGENTV_TARGET_PROXY_TOKEN": server.token,
            }

    async def _info(self, _path: str, _value: Any) -> tuple[int, Any]:
        counts = {"maxCalls": self._max_calls, "callCount": self.count}
        return (200, {"targetName": _DEFAULT, **counts, "availableTargets": [_DEFAULT]})

    async def _invoke(self, _path: str, value: Any) -> tuple[int, Any]:
        problem = self._problem(value)
        if problem is not None:
            return (400, {"error": problem})
        if self.count >= self._max_calls:
            return (429, {"error": f"Max calls exceeded (limit: {self._max_calls})"})
        try:
            return (200, _reply(await self._ask(value)))
        except (TargetError, SkippedError) as error:
            return (500, {"error": str(error)})

    async def _invoke_batch(self, _path: str, value: Any) -> tuple[int, Any]:
        requests = value.get("requests") if isinstance(value, Mapping) else None
        if not isinstance(requests, list):
            return (400, {"error": "Missing required field: requests (array)"})
        limit = self._max_calls
        if self.count + len(requests) > limit:
            counts = f"current: {self.count}, batch: {len(requests)}, limit: {limit}"
            return (429, {"error": f"Batch would exceed max calls ({counts})"})
        responses: list[dict[str, Any]] = []
        for request in requests:
            status, answer = await self._invoke("", request)
            failed = {"output": [], "rawText": f"Error: {answer.get('error')}"}
            responses.append(answer if status == HTTPStatus.OK else failed)
        return (200, {"responses": responses})

    def _problem(self, request: Any) -> str | None:
        question = request.get("question") if isinstance(request, Mapping) else None
        if not isinstance(question, str) or not question:
            return "Missing required field: question"
        name = request.get("target")
        if name in (None, _DEFAULT):
            return None
        return f"Unknown target '{name}'. Available: {_DEFAULT}"

    async def _ask(self, request: Mapping[str, Any]) -> JudgeAnswer:
        system = request.get("systemPrompt")
        question = JudgeQuestion(
            system if isinstance(system, str) else "", str(request["question"]), {}
        )
        self.count += 1
        try:
            return await self._judges.ask(JudgeSpec(), question)
        except SkippedError as error:
            self.skipped = error
            raise


def _reply(answer: JudgeAnswer) -> dict[str, Any]:
    usage = _usage(answer.metrics)
    return {
        "output": [{"role": "assistant", "content": answer.text}],
        "rawText": answer.text,
        **({"tokenUsage": {name: usage[name] for name in ("input", "output")}} if usage else {}),
    }


def with_values(value: Any, folder: Path) -> Any:
    """Return what a program is told, in which the values of variables stand for their references.

    Raise `TargetError` that names a variable that a suite of `folder` may not read or is not set.
    """
    variables = cache(suite_variables)

    def replacement(match: re.Match[str]) -> str:
        return variable_text(match, "the grader", folder, variables(folder))

    return _filled(value, replacement)


def _filled(value: Any, replacement: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(value, str):
        return substituted(value, replacement)
    if isinstance(value, Mapping):
        return {key: _filled(member, replacement) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(member, replacement) for member in value]
    return value


def environment_of(written: Mapping[str, str], folder: Path) -> tuple[dict[str, str], set[str]]:
    """Return the variables of `env:`, as a suite of `folder` writes it, and their secret values.

    What stands for a `${{ NAME }}` is secret, and what is called a secret. Raise `TargetError`
    that names a variable that may not be read or is not set.
    """
    values: dict[str, str] = with_values(dict(written), folder)
    secrets = {values[name] for name, text in written.items() if MARK in text}
    PROCESS.learn(secrets)
    return values, secrets | {*telling_values(values)}


_MODES: Final = {"added": "new file mode 100644\n", "deleted": "deleted file mode 100644\n"}


def unified_diff(evidence: Evidence) -> str | None:
    """Return the changes of files as one text; None where no workspace was looked at.

    Each file begins with git's line `diff --git`. A file without a diff (too long, no text) has a
    line that says what happened to it.
    """
    changes = evidence.details.get("file_changes")
    if changes is None or isinstance(changes, str):
        return changes
    return "".join(_diff_of(change) for change in changes if isinstance(change, Mapping))


def _diff_of(change: Mapping[str, Any]) -> str:
    path, kind = change.get("path"), str(change.get("change", "changed"))
    text = change.get("diff") or f"{kind}: {path}"
    end = "" if text.endswith("\n") else "\n"
    return f"diff --git a/{path} b/{path}\n{_MODES.get(kind, '')}{text}{end}"


_ARGUMENTS: Final = ("input", "arguments", "args")
_FAILED: Final = frozenset({"error", "timeout", "cancelled"})


def payload_of(config: Mapping[str, Any] | None, subject: Subject) -> dict[str, Any]:
    """Return what the program reads (docs/reference/graders.md, `code-grader`)."""
    case, metrics, folder = subject.case, subject.metrics, subject.context.folder
    input_messages = with_files(_messages(case.input, "user"), folder)
    answered = _answered(subject)
    trace = _trace(subject, [*input_messages, *answered], answered)
    expected = _messages(case.expected_output, "assistant")
    return {
        "criteria": case.criteria or "",
        "input": input_messages,
        "output": subject.output,
        "expected_output": with_files(expected, folder),
        "messages": trace["messages"],
        "output_messages": answered,
        "input_text": conversation_text(with_file_texts(case.input, folder)),
        "output_text": subject.output,
        "expected_output_text": expected_text(case.expected_output),
        "input_files": _paths(case.input, folder),
        "metadata": dict(case.metadata),
        "trace": trace,
        "trace_summary": {name: trace[name] for name in _SUMMARY if name in trace},
        "token_usage": _usage(metrics),
        "cost_usd": metrics.cost_usd,
        "duration_ms": metrics.latency_ms,
        "start_time": None,
        "end_time": None,
        "file_changes": unified_diff(subject.evidence),
        "workspace_path": _workspace_of(subject),
        "config": config,
    }


_SUMMARY: Final = ("event_count", "tool_calls", "error_count", "tool_durations", "llm_call_count")


def _messages(value: Any, role: str) -> list[dict[str, Any]]:
    return [_message(message) for message in message_array(value, role)]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without what is null, its tool calls as `{tool, input, output, id}`."""
    plain = {key: value for key, value in message.items() if value is not None}
    if "tool_calls" in plain:
        calls = plain["tool_calls"]
        plain["tool_calls"] = [_call(call) for call in calls if isinstance(call, Mapping)]
    return plain


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    inner = function if isinstance(function, Mapping) else call
    left = {"function", "name", *_ARGUMENTS}
    plain = {key: value for key, value in call.items() if key not in left and value is not None}
    arguments = next((inner[key] for key in _ARGUMENTS if inner.get(key) is not None), None)
    with_input = {} if arguments is None else {"input": arguments}
    return {**plain, "tool": str(call.get("tool") or inner.get("name") or ""), **with_input}


def _answered(subject: Subject) -> list[dict[str, Any]]:
    """Return the messages of the answer; the last one of the assistant has a content."""
    left = subject.evidence.details.get("messages")
    listed = left if isinstance(left, list | tuple) else ()
    messages = [_message(each) for each in listed if isinstance(each, Mapping) and "role" in each]
    return messages or [{"role": "assistant", "content": subject.output}]


def _paths(value: Any, folder: Path) -> list[str]:
    try:
        return [str(path) for path in attached_paths(value, folder)]
    except EvalError:  # removed since the suite was loaded
        return []


def _usage(metrics: Metrics) -> dict[str, int] | None:
    if metrics.total_tokens is None:
        return None
    usage = {"input": metrics.input_tokens or 0, "output": metrics.output_tokens or 0}
    return usage | metrics.usage_parts


def _trace(
    subject: Subject, messages: Sequence[Mapping[str, Any]], answered: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    calls = [call for message in answered for call in message.get("tool_calls", ())]
    counts = Counter(call["tool"] for call in calls)
    durations: dict[str, list[float]] = {}
    for call in calls:
        if isinstance(call.get("duration_ms"), int | float):
            durations.setdefault(call["tool"], []).append(call["duration_ms"])
    details, metrics = subject.evidence.details, subject.metrics
    measures = {
        "token_usage": _usage(metrics),
        "cost_usd": metrics.cost_usd,
        "duration_ms": metrics.latency_ms,
    }
    return {
        "event_count": len(calls),
        "tool_calls": dict(counts),
        "tool_names": sorted(counts),
        "tool_calls_by_name": dict(counts),
        "error_count": sum(1 for call in calls if call.get("status") in _FAILED),
        **({"tool_durations": durations} if durations else {}),
        "llm_call_count": sum(1 for message in answered if message["role"] == "assistant"),
        "messages": list(messages),
        "events": list(_events(messages)),
        **{name: value for name, value in measures.items() if value is not None},
        "calls": list(details.get("calls") or ()),
        "errors": list(details.get("errors") or ()),
    }


def _events(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield an event for each message and each of its tool calls, in their order."""
    ordinal = 0
    for index, message in enumerate(messages):
        plain = {key: message[key] for key in ("role", "content") if key in message}
        name = f"message-{index}"
        yield {"event_id": name, "ordinal": ordinal, "type": "message", "message": plain}
        ordinal += 1
        for position, call in enumerate(message.get("tool_calls", ())):
            tool = {key: call[key] for key in ("input", "output", "status") if key in call}
            yield {
                "event_id": f"{name}-tool-{position}",
                "parent_event_id": name,
                "ordinal": ordinal,
                "type": "tool_call",
                "tool": {"name": call["tool"], **tool},
            }
            ordinal += 1


def _workspace_of(subject: Subject) -> str | None:
    """Return the folder that the target worked in, or the one that an earlier run left."""
    if subject.context.workspace is not None:
        return str(subject.context.workspace)
    left = subject.evidence.details.get("workspace")
    return left if isinstance(left, str) and Path(left).is_dir() else None


DEFAULT_TIMEOUT_MS: Final = 60_000.0
_OUTPUT_LIMIT: Final = 8 << 20
Duration = Annotated[float, Field(gt=0)]


class Graded(NamedTuple):
    """What a program answered."""

    score: float
    aspects: tuple[Mapping[str, Any], ...]
    details: Any
    reasoning: str


class CodeGrader(Check):
    """The program's score is at least `threshold` (0.8).

    An exit code other than 0, no JSON, a score that is not in [0, 1] and a time-out are errors that
    show the reason that it gave, or the end of what it wrote.
    """

    omitted: ClassVar[frozenset[str]] = frozenset({"max_calls"})
    others_in: ClassVar[str | None] = "config"

    command: TextOrTexts
    cwd: OrAbsent[Text] = None
    config: OrAbsent[dict[str, Any]] = None
    timeout_ms: Duration = DEFAULT_TIMEOUT_MS
    env: OrAbsent[dict[str, str]] = None
    memory_mb: OrAbsent[Count] = None
    threshold: OrAbsent[Share] = None
    max_calls: OrAbsent[Annotated[int, Field(ge=0)]] = None

    async def check(self, subject: Subject) -> Verdict:
        """Run the program; its score is graded."""
        judges = MeteredJudges(subject.context.judges)
        calls = GraderCalls(self.max_calls, judges)
        async with calls.variables() as variables:
            answer = await run_grader(
                self.command,
                payload_of(self.config, subject),
                subject,
                self.env or {},
                cwd=self.cwd,
                timeout_ms=self.timeout_ms,
                memory_mb=self.memory_mb,
                variables=variables,
            )
        if calls.skipped is not None:
            raise calls.skipped
        return judges.on(self._graded(answer))

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
        target = written.get("target")
        if target is not None and target is not False:
            reader.use_judge("target")
            fields["max_calls"] = (
                MAX_CALLS if target is True else target.get("max_calls", MAX_CALLS)
            )
        return "code-grader", {**fields, "threshold": passing_score(written)}


# The fields that stand in files under their own names.
_FIELDS: Final = ("command", "cwd", "config", "timeout_ms", "env", "memory_mb")


class ModelAccess(TypedDict, total=False):
    """How often the program may call the judge."""

    max_calls: Annotated[int, Field(ge=0)]


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
    command: str | list[str],
    payload: Mapping[str, Any],
    subject: Subject,
    env: Mapping[str, str] = NOTHING,
    *,
    cwd: str | None = None,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    memory_mb: int | None = None,
    variables: Mapping[str, str] = NOTHING,
) -> Graded | Verdict:
    """Return what a program answers to the payload, or the verdict that it failed.

    `env` is as it is written, `variables` stand beside it in the program's environment.
    """
    from evalcore.trust.commands import run_command

    timeout_s = timeout_ms / 1000
    try:
        subject.context.imports.check_command("the grader")
        values, secrets = environment_of(env, subject.context.folder)
        command = with_values(command, subject.context.folder)
        if payload.get("config") is not None:
            payload = {**payload, "config": with_values(payload["config"], subject.context.folder)}
    except EvalError as error:
        return broken(str(error))
    workspace = payload.get("workspace_path")
    names = ("EVALCORE_WORKSPACE", "AGENTV_WORKSPACE_PATH") if isinstance(workspace, str) else ()
    ended = await run_command(
        command,
        stdin=json.dumps(payload, ensure_ascii=False, default=str).encode("utf-8", "replace"),
        cwd=subject.context.folder / (cwd or ""),
        timeout_s=timeout_s,
        env={**dict.fromkeys(names, str(workspace)), **values, **variables},
        output_limit=_OUTPUT_LIMIT,
        memory_limit=None if memory_mb is None else memory_mb << 20,
    )
    tail = last_words(redact(ended.stderr.decode(errors="replace"), secrets))
    if ended.exit_code and not tail:
        tail = last_words(redact(ended.stdout.decode(errors="replace"), secrets))
    if failure := ended.failure(timeout_s):
        return _failed(f"the grader {failure}", tail)
    try:
        return read_answer(redact(decoded(ended.stdout), secrets))
    except (ValueError, RecursionError) as error:
        return _failed(f"the grader's answer {error}", tail)


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
