"""The targets `command` and `cli`: a program answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, NamedTuple, NotRequired, Required

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
    with_config,
)
from typing_extensions import TypedDict

from evalcore.errors import EvalError, StoreError, TargetError
from evalcore.jsonvalues import decoded, parse, storable
from evalcore.judging.prompts import content_text
from evalcore.mistakes.wording import did_you_mean, path_text
from evalcore.model.evidence import NOTHING, Evidence, Metrics, with_warnings
from evalcore.model.suite import Case
from evalcore.providers.chat import WebAddress
from evalcore.targets.templates import shell_command, variable_reference, with_template
from evalcore.targets.work import Message, Work, json_text, with_attachments
from evalcore.trust.attachments import attached_paths
from evalcore.trust.commands import CommandResult, run_command
from evalcore.trust.machine_faults import (
    Noting,
    faults_noted_by,
    item_noting,
    noting_faults,
    unwritable,
    waited_out,
)
from evalcore.trust.secret_options import telling_values
from evalcore.trust.text import last_words, redact

ProgramSeconds = Annotated[
    float,
    Field(
        gt=0,
        allow_inf_nan=False,
        description="Seconds after which the program and its children are killed.",
    ),
]
ProgramVariables = Annotated[
    dict[str, str],
    Field(
        description="Environment variables beside PATH, HOME, LANG, LC_*, TMPDIR and SYSTEMROOT. "
        "Their values are left out of error messages.",
    ),
]


OUTPUT_LIMIT: Final = 8 << 20


def check_ending(result: CommandResult, timeout_s: float, secrets: Iterable[str] = ()) -> None:
    """Raise `TargetError` unless the program ended with 0, with the end of what it wrote.

    Its kind is `timeout` if the program was killed after `timeout_s`, else `command`.
    """
    if result.timed_out:
        limit = "the target's timeout, or limits.timeout_s of the suite"
        ending = f"the command took longer than {timeout_s:g} s ({limit})"
        raise program_error("timeout", ending, result, secrets)
    if result.exit_code < 0:
        ending = f"the command was killed by signal {-result.exit_code}"
        raise program_error("command", ending, result, secrets)
    if result.exit_code:
        ending = f"the command ended with exit code {result.exit_code}"
        raise program_error("command", ending, result, secrets)


def program_error(
    kind: str, ending: str, result: CommandResult, secrets: Iterable[str] = ()
) -> TargetError:
    """Return the error of a program, with the end of what it wrote and without the secrets."""
    printed = (result.stderr.strip() or result.stdout).decode(errors="replace")
    # Cut after the redaction: half a secret is not recognised.
    tail = last_words(redact(printed, secrets))
    return TargetError(kind, f"{ending}: {tail}" if tail else ending)


def too_long(output: str) -> TargetError:
    """Return the error of a program that wrote more than is read."""
    message = f"the command's {output} is longer than {OUTPUT_LIMIT >> 20} MiB"
    return TargetError("command", message)


def folder_variables(work: Work) -> dict[str, str]:
    """Return the variables by which a program in a workspace finds that and the suite."""
    if work.workspace is None:
        return {}
    return {
        "EVALCORE_WORKSPACE": str(work.workspace),
        "EVALCORE_SUITE_FOLDER": str(work.folder),
    }


@asynccontextmanager
async def program_files(texts: Mapping[str, str]) -> AsyncIterator[Path]:
    """Give a folder with these files, as long as the context.

    Raises `StoreError` if it cannot be written, or if it is gone once the program has ended without
    an answer: a program that finds none of its files has not failed.
    """

    async def write() -> TemporaryDirectory[str]:
        return _written(texts)

    with await waited_out(write) as name:
        folder = Path(name)
        try:
            yield folder
        except (TargetError, OSError) as error:
            if folder.is_dir():
                raise
            with noting_faults():
                reason = "the folder of a program's files is gone"
                raise StoreError(f"{folder}: {reason} (TMPDIR chooses another folder)") from error


def _written(texts: Mapping[str, str]) -> TemporaryDirectory[str]:
    try:
        directory = TemporaryDirectory(prefix="evalcore-", ignore_cleanup_errors=True)
    except OSError as error:
        raise unwritable(error) from error
    try:
        for name, text in texts.items():
            (Path(directory.name) / name).write_bytes(text.encode(errors="replace"))
    except OSError as error:
        directory.cleanup()
        raise unwritable(error) from error
    return directory


# Works that wait at the same time arrive within this time.
_GATHER_S: Final = 0.1
_ANSWERS: Final = ("output", "text", "answer")


class ProgramAnswer(NamedTuple):
    """What a program wrote, as text, and how long it took."""

    text: str
    latency_ms: float


# Runs the program for the first of some works with these lines as its prompt.
Ask = Callable[[Work, str], Awaitable[ProgramAnswer]]
# The answer to a case, by its id and its share of the time; raises `TargetError`.
EvidenceOf = Callable[[str, float], Evidence]


class _Batch:
    """Works that wait to be asked together, by the ids of their cases."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}
        self.answers: dict[str, asyncio.Future[Evidence]] = {}
        self.notings: dict[str, Noting] = {}
        self.closed = asyncio.Event()

    @contextmanager
    def noting_faults(self) -> Iterator[None]:
        """Note a fault for each work that waits; the time of all stands still meanwhile."""
        with ExitStack() as stack:
            for name, answer in self.answers.items():
                if not answer.done():
                    stack.enter_context(self.notings[name]())
            yield


class Batches:
    """Gathers works that wait at the same time, at most `size`; for several event loops.

    Works in different workspaces, and several of one case, are never in the same batch. `read`
    returns what gives the answers that a text holds.
    """

    def __init__(
        self, size: int, ask: Ask, read: Callable[[str], EvidenceOf] | None = None
    ) -> None:
        self._size = size
        self._ask = ask
        self._read = read or _answers_in
        self._open: dict[tuple[asyncio.AbstractEventLoop, Path | None], _Batch] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def answer(self, work: Work) -> Evidence:
        """Return the answer to one work; raise `TargetError`."""
        key = (asyncio.get_running_loop(), work.workspace)
        batch = self._open.get(key)
        if batch is None or work.case.id in batch.works:
            if batch is not None:
                batch.closed.set()
            batch = self._open[key] = _Batch()
            task = asyncio.create_task(self._run(key, batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        batch.works[work.case.id] = work
        batch.notings[work.case.id] = item_noting()
        answer: asyncio.Future[Evidence] = asyncio.get_running_loop().create_future()
        batch.answers[work.case.id] = answer
        if len(batch.works) >= self._size:
            self._close(key, batch)
        try:
            return await answer
        except asyncio.CancelledError:
            answer.cancel()
            raise

    def _close(self, key: tuple[asyncio.AbstractEventLoop, Path | None], batch: _Batch) -> None:
        batch.closed.set()
        if self._open.get(key) is batch:
            del self._open[key]

    async def _run(self, key: tuple[asyncio.AbstractEventLoop, Path | None], batch: _Batch) -> None:
        """Wait until the batch is full or no work arrives, run it, and hand out the answers."""
        try:
            async with asyncio.timeout(_GATHER_S):
                await batch.closed.wait()
        except TimeoutError:
            self._close(key, batch)
        works = [work for name, work in batch.works.items() if not batch.answers[name].cancelled()]
        if not works:
            return
        with faults_noted_by(batch.noting_faults):
            run = asyncio.ensure_future(self._ask(works[0], _lines(works)))
        waiting = set(batch.answers.values())
        # The run ends once no answer is awaited.
        while not run.done():
            left = {answer for answer in waiting if not answer.done()}
            if not left:
                run.cancel()
            awaited: set[asyncio.Future[Any]] = {run, *left}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        self._hand_out(batch, run)

    def _hand_out(self, batch: _Batch, run: asyncio.Future[ProgramAnswer]) -> None:
        open_ = {name: answer for name, answer in batch.answers.items() if not answer.done()}
        if run.cancelled():
            error: BaseException | None = TargetError("command", "the batch was stopped")
        else:
            error = run.exception()
        if error is not None:
            for answer in open_.values():
                answer.set_exception(error)
            return
        result = run.result()
        evidence_of = self._read(result.text)
        share_ms = round(result.latency_ms / len(batch.works), 1)
        for name, answer in open_.items():
            try:
                answer.set_result(evidence_of(name, share_ms))
            except TargetError as problem:
                answer.set_exception(problem)
            # An answer that is never set would hold its item for ever.
            except (TypeError, ValueError, RecursionError) as problem:
                message = f"the batch's answer to {name!r} cannot be kept: {problem}"
                answer.set_exception(TargetError("command", message))


def _lines(works: list[Work]) -> str:
    """Return a line for each work, in their order."""
    return "".join(
        json_text(
            {
                "id": work.case.id,
                "prompt": work.prompt,
                "messages": [dict(message) for message in work.messages],
                "metadata": dict(work.case.metadata),
            }
        )
        + "\n"
        for work in works
    )


def _answers_in(text: str) -> EvidenceOf:
    records = _read(text)
    return lambda name, share_ms: _evidence(name, records, share_ms)


def _read(text: str) -> dict[str, Mapping[str, Any]] | TargetError:
    """Return the answers by their ids, or what is wrong with them as a whole."""
    records: dict[str, Mapping[str, Any]] = {}
    # Only a line feed ends a line: a text in JSON may hold other separators, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        value: Any = None
        with suppress(ValueError):
            value = parse(line)
        if not isinstance(value, dict) or not isinstance(value.get("id"), str):
            message = f'line {number} of the batch\'s answer is no JSON object with an "id"'
            return TargetError("command", message)
        records[value["id"]] = value
    return records


def _evidence(
    name: str, records: Mapping[str, Mapping[str, Any]] | TargetError, share_ms: float
) -> Evidence:
    if isinstance(records, TargetError):
        raise records
    record, notes = storable(records.get(name))
    if record is None:
        raise TargetError("command", f"the batch's answer has no line with the id {name!r}")
    if record.get("error"):
        raise TargetError("command", str(record["error"]))
    key = next((key for key in _ANSWERS if key in record), None)
    if key is None:
        raise TargetError("command", f'the batch\'s answer to {name!r} has no "output"')
    value = record[key]
    tokens = record.get("token_usage")
    tokens = tokens if isinstance(tokens, dict) else {}
    latency_ms = record.get("latency_ms", record.get("duration_ms"))
    metrics = Metrics(
        latency_ms=share_ms if latency_ms is None else latency_ms,
        cost_usd=record.get("cost_usd"),
        input_tokens=record.get("input_tokens", tokens.get("input")),
        output_tokens=record.get("output_tokens", tokens.get("output")),
        cached_tokens=record.get("cached_tokens", tokens.get("cached")),
        reasoning_tokens=record.get("reasoning_tokens", tokens.get("reasoning")),
    )
    text = value if isinstance(value, str) else json_text(value)
    return with_warnings(Evidence(text, metrics=metrics), notes)


_OPEN: Final = ConfigDict(extra="allow", strict=True)


@with_config(_OPEN)
class _Call(TypedDict, total=False):
    tool: Required[Annotated[str, Field(min_length=1)]]


@with_config(_OPEN)
class _Message(TypedDict, total=False):
    role: Required[str]
    content: Any
    tool_calls: list[_Call]


@with_config(_OPEN)
class _Tokens(TypedDict):
    input: int
    output: int
    cached: NotRequired[int]
    reasoning: NotRequired[int]


@with_config(_OPEN)
class _Answer(TypedDict, total=False):
    output: list[_Message]
    output_messages: list[_Message]
    text: Any


@with_config(_OPEN)
class _Measures(TypedDict, total=False):
    token_usage: _Tokens | None
    cost_usd: float | None
    duration_ms: float | None


_ANSWER: Final[TypeAdapter[Any]] = TypeAdapter(_Answer)
_MEASURES: Final[TypeAdapter[Any]] = TypeAdapter(_Measures)


def read_answer(text: str, measured_ms: float) -> Evidence:
    """Return the evidence that a program's answer is.

    JSON counts if it is an object with `output` (messages) or `text`; any other answer is the
    output as it stands, with a warning if only its measures have a wrong shape. Without
    `duration_ms` the latency is `measured_ms`.
    """
    (text, answer), notes = storable((text, _object_in(text)))
    details: Mapping[str, Any] = NOTHING
    try:
        evidence = None if answer is None else evidence_in(answer, measured_ms)
    except TargetError as error:
        evidence, details = None, {"warnings": [f"{error}; the answer is taken as it stands"]}
    plain = Evidence(text, metrics=Metrics(latency_ms=measured_ms), details=details)
    return with_warnings(evidence or plain, notes)


def evidence_in(answer: Mapping[str, Any], measured_ms: float | None) -> Evidence | None:
    """Return the evidence in an object; None if it has neither `output` nor `text`.

    Raises `TargetError` of kind `metrics` where its measures have a wrong shape.
    """
    try:
        _ANSWER.validate_python(answer)
    except ValidationError:
        return None
    messages = answer.get("output") or answer.get("output_messages") or []
    if not messages and "text" not in answer:
        return None
    try:
        _MEASURES.validate_python(answer)
    except ValidationError as error:
        raise TargetError("metrics", f"the answer's {_mistake(error, answer)}") from error
    output = last_text(messages) if messages else _as_text(answer["text"])
    tokens = answer.get("token_usage") or {}
    latency_ms = _measure(answer, "duration_ms")
    metrics = Metrics(
        latency_ms=measured_ms if latency_ms is None else latency_ms,
        cost_usd=_measure(answer, "cost_usd"),
        input_tokens=tokens.get("input"),
        output_tokens=tokens.get("output"),
        cached_tokens=tokens.get("cached"),
        reasoning_tokens=tokens.get("reasoning"),
    )
    return Evidence(
        output, metrics=metrics, details={"messages": messages} if messages else NOTHING
    )


def read_batch(text: str) -> EvidenceOf:
    """Return what gives the answers of a batch's JSON lines by the ids of their tests."""
    records: dict[str, Mapping[str, Any]] = {}
    problem = ""
    # Only a line feed ends a line: a text in JSON may hold other separators, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        record = _object_in(line) if line.strip() else {}
        name = None if record is None else record.get("id")
        if isinstance(name, str) and name in records:
            problem = problem or f"has two lines with the id {name!r}"
        elif record is not None and isinstance(name, str):
            records[name] = record
        elif line.strip():
            problem = problem or f'has no JSON object with an "id" in line {number}'

    def evidence_of(name: str, share_ms: float) -> Evidence:
        if problem:
            raise TargetError("command", f"the batch's answer {problem}")
        if name not in records:
            raise TargetError("command", f"the batch's answer has no line with the id {name!r}")
        record, notes = storable(records[name])
        evidence = evidence_in(record, share_ms)
        if evidence is None:
            message = f"the batch's answer to {name!r} has neither messages in 'output' nor 'text'"
            raise TargetError("command", message)
        return with_warnings(evidence, notes)

    return evidence_of


def last_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the last message of the assistant that has a content."""
    for message in reversed(messages):
        if message.get("role") == "assistant" and message.get("content") is not None:
            return content_text(message["content"])
    return ""


def _mistake(error: ValidationError, answer: Mapping[str, Any]) -> str:
    from evalcore.mistakes.shape_errors import explain

    loc, message = next(iter(explain(error, answer, _Measures)))
    return f"{path_text(loc)}: {message}"


def _measure(answer: Mapping[str, Any], name: str) -> float | None:
    value = answer.get(name)
    # A negative cost or duration is a mistake of the program and no measure.
    return None if value is None or value < 0 else float(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else content_text(value)


def _object_in(text: str) -> dict[str, Any] | None:
    value: Any = None
    with suppress(ValueError):
        value = parse(text)
    return value if isinstance(value, dict) else None


# `${id}` is the shell's, not ours.
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{(prompt|prompt_file|messages_file|output_file|id)\}")
_VARIABLES: Final = {
    "prompt": "EVALCORE_PROMPT",
    "prompt_file": "EVALCORE_PROMPT_FILE",
    "messages_file": "EVALCORE_MESSAGES_FILE",
    "output_file": "EVALCORE_OUTPUT_FILE",
    "id": "EVALCORE_ID",
}


class CommandOptions(BaseModel):
    """Options of a target of kind `command`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    command: (
        Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=1)]
    ) = Field(
        description="An array is run without a shell, a string by `/bin/sh -c`. `{prompt}`, "
        "`{prompt_file}`, `{messages_file}` (the whole input as a JSON array of messages), "
        "`{output_file}` and `{id}` (the case's) are replaced; in a string they are quoted for "
        "the shell. Without `{prompt}` and `{prompt_file}` the prompt is the "
        "standard input. The answer is the content of `{output_file}` if that is named, else the "
        "standard output, each without one newline at its end; UTF-8."
    )
    prompt_template: str | None = Field(
        default=None, description="As of models: what `{prompt}` stands for."
    )
    timeout: ProgramSeconds = 300
    cwd: str | None = Field(
        default=None,
        description="Working directory, relative to the test's workspace if it has one, else to "
        "the suite's folder; by default that folder itself.",
    )
    env: ProgramVariables = Field(default_factory=dict)
    memory_mb: int | None = Field(
        default=None,
        gt=0,
        description="Address space that each process may use, in MiB. Some runtimes (Node, Java) "
        "reserve far more than they use.",
    )
    batch: int | None = Field(
        default=None,
        ge=1,
        description="So many cases at most, of those that are waiting at the same time, are "
        "answered by one run of the program: it reads them as JSON lines `{id, prompt, messages, "
        "metadata}` (`{prompt_file}` or standard input) and writes JSON lines `{id, output}` in "
        "any order, which may also have `error`, `latency_ms`, `cost_usd`, `input_tokens` and "
        "`output_tokens`.",
    )

    @model_validator(mode="after")
    def _check_batch(self) -> CommandOptions:
        text = self.command if isinstance(self.command, str) else " ".join(self.command)
        named = {match[1] for match in _PLACEHOLDER.finditer(text)}
        single = sorted(named & {"prompt", "messages_file", "id"})
        if self.batch is not None and single:
            raise ValueError(f"{{{single[0]}}} is one case's and cannot stand beside `batch`")
        return self


class _Files(NamedTuple):
    prompt: Path
    messages: Path
    output: Path


class CommandTarget:
    """Runs the program once per item; its output is the answer."""

    def __init__(self, options: CommandOptions) -> None:
        self._options = options
        command = options.command
        text = command if isinstance(command, str) else "\0".join(command)
        self._secrets = telling_values(options.env)
        self._named = frozenset(match[1] for match in _PLACEHOLDER.finditer(text))
        self._batches = None if options.batch is None else Batches(options.batch, self._run_program)

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return True: a program takes its time."""
        return True

    async def answer(self, work: Work) -> Evidence:
        """Return what the program answers; its latency is measured from start to end.

        Raise `TargetError`: of kind `timeout` if its time ran out (`timeout` or the item's,
        whichever is shorter), else of kind `command`, with the end of what it wrote.
        """
        work = with_template(with_attachments(work), self._options.prompt_template)
        if self._batches is not None:
            return await self._batches.answer(work)
        printed, latency_ms = await self._run_program(work, work.prompt)
        text, notes = storable(printed)
        return with_warnings(Evidence(text, metrics=Metrics(latency_ms=latency_ms)), notes)

    async def _run_program(self, work: Work, prompt: str) -> ProgramAnswer:
        async with self._files(work, prompt) as files:
            started = time.perf_counter()
            result = await self._run(work, prompt, files)
            latency_ms = round((time.perf_counter() - started) * 1000, 1)
            check_ending(result, self._timeout_s(work), self._options.env.values())
            answer = self._answer(result, files)
        ending = b"\r\n" if answer.endswith(b"\r\n") else b"\n"
        text = decoded(answer.removesuffix(ending))
        # What a program prints is stored; its keys must not be.
        return ProgramAnswer(redact(text, self._secrets), latency_ms)

    @asynccontextmanager
    async def _files(self, work: Work, prompt: str) -> AsyncIterator[_Files | None]:
        if not self._named & {"prompt_file", "messages_file", "output_file"}:
            yield None
            return
        texts = {"prompt.txt": prompt}
        if "messages_file" in self._named:
            texts["messages.json"] = json_text([dict(message) for message in work.messages])
        async with program_files(texts) as root:
            yield _Files(root / "prompt.txt", root / "messages.json", root / "output.txt")

    async def _run(self, work: Work, prompt: str, files: _Files | None) -> CommandResult:
        options = self._options
        values = {"prompt": prompt, "id": work.case.id}
        if files is not None:
            values |= {
                "prompt_file": str(files.prompt),
                "messages_file": str(files.messages),
                "output_file": str(files.output),
            }
        try:
            work.imports.check_command("the command")
        except EvalError as error:
            raise TargetError("command", str(error)) from error
        env = {**folder_variables(work), **options.env}
        if isinstance(options.command, str):
            command: str | list[str] = shell_command(
                options.command,
                _PLACEHOLDER,
                lambda name, quote: variable_reference(_VARIABLES[name], quote),
            )
            env |= {_VARIABLES[name]: values[name] for name in self._named}
        else:
            command = [_filled(_from_suite(part, work), values) for part in options.command]
        reads_input = not self._named & {"prompt", "prompt_file", "messages_file"}
        return await run_command(
            command,
            stdin=prompt.encode(errors="replace") if reads_input else b"",
            cwd=(work.workspace or work.folder) / (options.cwd or ""),
            timeout_s=self._timeout_s(work),
            env=env,
            output_limit=OUTPUT_LIMIT,
            memory_limit=None if options.memory_mb is None else options.memory_mb << 20,
        )

    def _timeout_s(self, work: Work) -> float:
        return min(self._options.timeout, work.item_timeout_s or self._options.timeout)

    def _answer(self, result: CommandResult, files: _Files | None) -> bytes:
        if files is None or "output_file" not in self._named:
            if result.truncated and len(result.stdout) >= OUTPUT_LIMIT:
                raise too_long("standard output")
            return result.stdout
        # Only a regular file: to open a pipe would wait for its writer.
        if not files.output.is_file():
            raise program_error(
                "command", "the command wrote no {output_file}", result, self._options.env.values()
            )
        if files.output.stat().st_size > OUTPUT_LIMIT:
            raise too_long("{output_file}")
        return files.output.read_bytes()


def _from_suite(element: str, work: Work) -> str:
    """Return an element of an array; a file of the suite's folder by its whole path.

    A program that works in a workspace gets files beside the suite by their paths, unless the
    workspace has one of that name.
    """
    if work.workspace is None or "{" in element or not element or element.startswith("-"):
        return element
    try:
        beside = work.folder / element
        is_beside = beside.is_file() and not (work.workspace / element).exists()
    except (OSError, ValueError):  # a name that no file system takes
        return element
    return str(beside) if is_beside else element


def _filled(element: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match[1]], element)


# `${HOME}` is the shell's, not ours.
PLACEHOLDER: Final = re.compile(r"(?<!\$)\{([A-Z_]+)\}")
PLACEHOLDERS: Final = ("PROMPT", "PROMPT_FILE", "FILES", "OUTPUT_FILE", "EVAL_ID", "ATTEMPT")
_CONFIG: Final = ConfigDict(
    extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True
)


def _checked_command(command: str) -> str:
    for match in PLACEHOLDER.finditer(command):
        if match[1] not in PLACEHOLDERS:
            supported = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            hint = did_you_mean(match[1], PLACEHOLDERS)
            raise ValueError(f"unknown placeholder {match[0]}.{hint} Supported: {supported}")
    return command


class HealthCheck(BaseModel):
    """Asked once before the first answer: a web address, or a command."""

    model_config = _CONFIG

    url: WebAddress | None = Field(default=None, description="Has to answer a GET with 2xx.")
    command: str | None = Field(default=None, description="Has to end with exit code 0.")
    cwd: str | None = Field(default=None, description="As `cwd` of the target.")
    timeout_seconds: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Default: the target's."
    )

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: str | None) -> str | None:
        return None if command is None else _checked_command(command)

    @model_validator(mode="after")
    def _check_way(self) -> HealthCheck:
        if (self.url is None) == (self.command is None):
            raise ValueError("needs either 'url' or 'command'")
        return self


class CliOptions(BaseModel):
    """Options of a target of kind `cli`."""

    model_config = _CONFIG

    command: Annotated[str, Field(min_length=1)] = Field(
        description="Run by `/bin/sh -c` in the suite's folder. `{PROMPT}` (the whole input as "
        "text), `{PROMPT_FILE}`, `{FILES}` (the paths of the attached files), `{OUTPUT_FILE}`, "
        "`{EVAL_ID}` and `{ATTEMPT}` are replaced, quoted for the shell. The answer is the content "
        "of `{OUTPUT_FILE}` if that is named, else the standard output: text, or JSON "
        "`{output: [{role, content, tool_calls}], text, token_usage: {input, output}, cost_usd, "
        "duration_ms}`.",
    )
    timeout_seconds: ProgramSeconds = 300
    cwd: str | None = Field(
        default=None,
        description="Working directory, relative to the suite's folder; a test with a workspace "
        "has that one.",
    )
    files_format: str = Field(
        default="{path}",
        validation_alias=AliasChoices("files_format", "attachments_format"),
        description="How each file stands in `{FILES}`, with `{path}` and `{basename}`.",
    )
    healthcheck: HealthCheck | None = Field(
        default=None,
        description="`{url}` or `{command, cwd}`, with `timeout_seconds`: asked once before the "
        "first answer; if it fails no test is answered.",
    )
    env: ProgramVariables = Field(default_factory=dict)
    batch_requests: bool = Field(
        default=False,
        validation_alias=AliasChoices("batch_requests", "provider_batching"),
        description="One run of the program answers all tests that wait at the same time: JSON "
        "lines `{id, prompt, messages, metadata}` in `{PROMPT_FILE}`, JSON lines with `id` as the "
        "answer.",
    )
    keep_temp_files: bool = Field(
        default=False,
        validation_alias=AliasChoices("keep_temp_files", "keep_output_files"),
        description="Read and of no effect.",
    )
    verbose: bool = Field(
        default=False,
        validation_alias=AliasChoices("verbose", "cli_verbose"),
        description="Read and of no effect.",
    )

    @field_validator("command")
    @classmethod
    def _check_command(cls, command: str) -> str:
        return _checked_command(command)

    @field_validator("healthcheck", mode="before")
    @classmethod
    def _ignore_nothing(cls, value: Any) -> Any:
        return value or None


_LARGEST_BATCH: Final = 10_000


class _Run(NamedTuple):
    """One run of a program: what its placeholders stand for, and where it answers."""

    values: Mapping[str, str]
    files: Sequence[Path]
    output: Path


class CliTarget:
    """Runs the program once per item; its answer may have messages, tool calls and measures."""

    def __init__(self, options: CliOptions) -> None:
        self._options = options
        self._secrets = telling_values(options.env)
        batches = Batches(_LARGEST_BATCH, self._run_program, read_batch)
        self._batches = batches if options.batch_requests else None
        self._healthy: dict[asyncio.AbstractEventLoop, asyncio.Future[None]] = {}

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return True: a program takes its time."""
        return True

    async def answer(self, work: Work) -> Evidence:
        """Return what the program answers.

        Raise `TargetError`: of kind `healthcheck` if the target is not healthy, `timeout` if its
        time ran out, else `command`, with the end of what the program wrote.
        """
        await self._check_health(work)
        if self._batches is not None:
            return await self._batches.answer(with_attachments(work))
        prompt = conversation_prompt(with_attachments(work).messages)
        answer = await self._run_program(work, prompt)
        return read_answer(answer.text, answer.latency_ms)

    async def _run_program(self, work: Work, prompt: str) -> ProgramAnswer:
        is_batch = self._batches is not None
        async with _prepared(work, prompt, is_batch=is_batch) as run:
            started = time.perf_counter()
            text = await self._output(self._options.command, work, run)
            latency_ms = round((time.perf_counter() - started) * 1000, 1)
        # What a program prints is stored; its keys must not be.
        return ProgramAnswer(redact(text, self._secrets), latency_ms)

    async def _output(self, command: str, work: Work, run: _Run) -> str:
        options = self._options
        timeout_s = min(options.timeout_seconds, work.item_timeout_s or options.timeout_seconds)
        result = await self._started(command, work, run, options.cwd, timeout_s)
        secrets = options.env.values()
        check_ending(result, timeout_s, secrets)
        if "OUTPUT_FILE" not in {match[1] for match in PLACEHOLDER.finditer(command)}:
            if result.truncated and len(result.stdout) >= OUTPUT_LIMIT:
                raise too_long("standard output")
            return decoded(result.stdout)
        # Only a regular file: to open a pipe would wait for its writer.
        if not run.output.is_file():
            raise program_error("command", "the command wrote no {OUTPUT_FILE}", result, secrets)
        if run.output.stat().st_size > OUTPUT_LIMIT:
            raise too_long("{OUTPUT_FILE}")
        text = decoded(run.output.read_bytes())
        return text.replace("\r\n", "\n").replace("\r", "\n")

    async def _started(
        self, command: str, work: Work, run: _Run, cwd: str | None, timeout_s: float
    ) -> Any:
        try:
            work.imports.check_command("the command")
        except EvalError as error:
            raise TargetError("command", str(error)) from error
        text, variables = _with_variables(command, run, self._options.files_format)
        return await run_command(
            text,
            cwd=work.workspace or work.folder / (cwd or ""),
            timeout_s=timeout_s,
            env={**folder_variables(work), **self._options.env, **variables},
            output_limit=OUTPUT_LIMIT,
        )

    async def _check_health(self, work: Work) -> None:
        """Ask for the target's health, once in each event loop."""
        check = self._options.healthcheck
        if check is None:
            return
        loop = asyncio.get_running_loop()
        if loop not in self._healthy:
            self._healthy[loop] = asyncio.ensure_future(self._ask_health(check, work))
        # The check goes on for the others when one that waits for it is cancelled.
        await asyncio.shield(self._healthy[loop])

    async def _ask_health(self, check: HealthCheck, work: Work) -> None:
        timeout_s = check.timeout_seconds or self._options.timeout_seconds
        try:
            if check.url is not None:
                await asyncio.to_thread(_get, check.url, timeout_s)
                return
            async with _prepared(work, "", is_batch=False) as run:
                cwd = check.cwd or self._options.cwd
                command = check.command or ""
                result = await self._started(command, work, run, cwd, timeout_s)
                check_ending(result, timeout_s, self._options.env.values())
        except (TargetError, OSError) as error:
            raise TargetError("healthcheck", f"the health check failed: {error}") from error


def conversation_prompt(messages: Sequence[Message]) -> str:
    """Return the messages as one text: a single message as it is, several each with its role."""
    texts = [(message["role"], content_text(message["content"]).strip()) for message in messages]
    texts = [(role, text) for role, text in texts if text]
    if len(texts) <= 1:
        return "".join(text for _, text in texts)
    return "\n\n".join(f"@[{role.capitalize()}]:\n{text}" for role, text in texts)


@asynccontextmanager
async def _prepared(work: Work, prompt: str, *, is_batch: bool) -> AsyncIterator[_Run]:
    try:
        files = [] if is_batch else attached_paths(work.messages, work.folder)
    except EvalError as error:
        raise TargetError("input", str(error)) from error
    async with program_files({"prompt.txt": prompt}) as folder:
        output = folder / ("output.jsonl" if is_batch else "output.json")
        values = {
            "PROMPT": "" if is_batch else prompt,
            "PROMPT_FILE": str(folder / "prompt.txt"),
            "OUTPUT_FILE": str(output),
            "EVAL_ID": "batch" if is_batch else work.case.id,
            "ATTEMPT": str(work.iteration),
        }
        yield _Run(values, files, output)


def _with_variables(command: str, run: _Run, files_format: str) -> tuple[str, dict[str, str]]:
    """Return the command for the shell, and the variables that it refers to."""
    variables: dict[str, str] = {}

    def named(name: str, value: str, quote: str) -> str:
        variables[f"EVALCORE_{name}"] = value
        return variable_reference(f"EVALCORE_{name}", quote)

    def reference(name: str, quote: str) -> str:
        if name != "FILES":
            return named(name, run.values[name], quote)
        return " ".join(
            files_format.replace("{path}", named(f"FILE_{number}", str(path), quote)).replace(
                "{basename}", named(f"FILE_{number}_NAME", path.name, quote)
            )
            for number, path in enumerate(run.files)
        )

    return shell_command(command, PLACEHOLDER, reference), variables


def _get(url: str, timeout_s: float) -> None:
    """Raise `OSError` unless a GET of the address is answered with 2xx."""
    from urllib.request import urlopen

    with urlopen(url, timeout=timeout_s):  # noqa: S310 - the option takes web addresses only
        pass
