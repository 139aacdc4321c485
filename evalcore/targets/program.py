"""The targets `command` and `cli`: a program answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, AliasChoices, Field, field_validator, model_validator

from evalcore.errors import EvalError, StoreError, TargetError
from evalcore.jsonvalues import decoded, parse, storable
from evalcore.judging.prompts import content_text
from evalcore.model.evidence import NOTHING, Evidence, Metrics, with_warnings
from evalcore.providers.chat import WebAddress
from evalcore.targets.answers import evidence_in
from evalcore.targets.templates import Reference, shell_command, variable_reference, with_template
from evalcore.targets.work import (
    Answering,
    Message,
    TargetOptions,
    Work,
    json_text,
    with_attachments,
)
from evalcore.trust.commands import CommandResult, run_command
from evalcore.trust.files import attached_paths
from evalcore.trust.machine_faults import noting_faults, temporary_folder, waited_out
from evalcore.trust.secrets import telling_values
from evalcore.trust.text import last_words, redact
from evalcore.wording import did_you_mean

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

    async def write() -> tuple[ExitStack, Path]:
        with ExitStack() as stack:
            folder = stack.enter_context(temporary_folder())
            for name, text in texts.items():
                (folder / name).write_bytes(text.encode(errors="replace"))
            return stack.pop_all(), folder

    stack, folder = await waited_out(write)
    with stack:
        try:
            yield folder
        except (TargetError, OSError) as error:
            if folder.is_dir():
                raise
            with noting_faults():
                reason = "the folder of a program's files is gone"
                raise StoreError(f"{folder}: {reason} (TMPDIR chooses another folder)") from error


class _Run(NamedTuple):
    """One run of a program: what its placeholders stand for, and where it may answer."""

    values: Mapping[str, str]
    output: Path
    files: Sequence[Path] = ()


class _ProgramTarget(Answering):
    """Starts a program for an item."""

    placeholder: re.Pattern[str]
    output_file: str

    def __init__(self, command: str | Sequence[str], env: Mapping[str, str]) -> None:
        text = command if isinstance(command, str) else "\0".join(command)
        self._env = env
        self._secrets = telling_values(env)
        self._named = frozenset(match[1] for match in self.placeholder.finditer(text))

    async def _ended(
        self,
        command: str | Sequence[str],
        work: Work,
        run: _Run,
        *,
        cwd: Path,
        timeout_s: float,
        stdin: bytes = b"",
    ) -> CommandResult:
        """Return how the program ended, which is with exit code 0; raise `TargetError`."""
        try:
            work.imports.check_command("the command")
        except EvalError as error:
            raise TargetError("command", str(error)) from error
        env = {**folder_variables(work), **self._env}
        started: str | list[str]
        if isinstance(command, str):
            started = shell_command(command, self.placeholder, self._references(run, env))
        else:
            parts = [_from_suite(part, work) for part in command]
            started = [self.placeholder.sub(lambda at: run.values[at[1]], part) for part in parts]
        result = await run_command(
            started,
            stdin=stdin,
            cwd=cwd,
            timeout_s=timeout_s,
            env=env,
            output_limit=OUTPUT_LIMIT,
        )
        if ending := result.failure(timeout_s):
            kind = "timeout" if result.timed_out else "command"
            limit = " (the target's timeout, or limits.timeout_s of the suite)"
            ending = f"the command {ending}{limit if result.timed_out else ''}"
            raise program_error(kind, ending, result, self._env.values())
        return result

    def _references(self, run: _Run, env: dict[str, str]) -> Reference:
        """Return what makes placeholders variables of the shell, which it puts into `env`."""

        def reference(name: str, quote: str) -> str:
            variable = f"EVALCORE_{name.upper()}"
            env[variable] = run.values[name]
            return variable_reference(variable, quote)

        return reference

    def _answer(self, result: CommandResult, output: Path) -> str:
        """Return the content of the output file if the command names it, else what it printed."""
        if self.output_file not in self._named:
            if result.truncated and len(result.stdout) >= OUTPUT_LIMIT:
                raise too_long("standard output")
            data = result.stdout
        # Only a regular file: to open a pipe would wait for its writer.
        elif not output.is_file():
            ending = f"the command wrote no {{{self.output_file}}}"
            raise program_error("command", ending, result, self._env.values())
        elif output.stat().st_size > OUTPUT_LIMIT:
            raise too_long(f"{{{self.output_file}}}")
        else:
            data = output.read_bytes()
        # What a program prints is stored; its keys must not be.
        return redact(decoded(data), self._secrets)


# `${id}` is the shell's, not ours.
_COMMAND: Final = re.compile(r"(?<!\$)\{(prompt|prompt_file|messages_file|output_file|id)\}")


class CommandOptions(TargetOptions):
    """Options of a target of kind `command`."""

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


class CommandTarget(_ProgramTarget):
    """Runs the program once per item; its output is the answer."""

    placeholder = _COMMAND
    output_file = "output_file"

    def __init__(self, options: CommandOptions) -> None:
        super().__init__(options.command, options.env)
        self._options = options

    async def answer(self, work: Work) -> Evidence:
        """Return what the program answers; its latency is measured from start to end.

        Raise `TargetError`: of kind `timeout` if its time ran out (`timeout` or the item's,
        whichever is shorter), else of kind `command`, with the end of what it wrote.
        """
        options = self._options
        work = with_template(with_attachments(work), options.prompt_template)
        prompt = work.prompt
        messages = json_text([dict(message) for message in work.messages])
        reads_input = not self._named & {"prompt", "prompt_file", "messages_file"}
        async with program_files({"prompt.txt": prompt, "messages.json": messages}) as folder:
            values = {
                "prompt": prompt,
                "id": work.case.id,
                "prompt_file": str(folder / "prompt.txt"),
                "messages_file": str(folder / "messages.json"),
                "output_file": str(folder / "output.txt"),
            }
            started = time.perf_counter()
            result = await self._ended(
                options.command,
                work,
                _Run(values, folder / "output.txt"),
                cwd=(work.workspace or work.folder) / (options.cwd or ""),
                timeout_s=min(options.timeout, work.item_timeout_s or options.timeout),
                stdin=prompt.encode(errors="replace") if reads_input else b"",
            )
            latency_ms = round((time.perf_counter() - started) * 1000, 1)
            text = self._answer(result, folder / "output.txt")
        ending = "\r\n" if text.endswith("\r\n") else "\n"
        printed, notes = storable(text.removesuffix(ending))
        return with_warnings(Evidence(printed, metrics=Metrics(latency_ms=latency_ms)), notes)


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


# `${HOME}` is the shell's, not ours.
_CLI: Final = re.compile(r"(?<!\$)\{([A-Z_]+)\}")
_CLI_NAMES: Final = ("PROMPT", "PROMPT_FILE", "FILES", "OUTPUT_FILE", "EVAL_ID", "ATTEMPT")


def _checked_command(command: str) -> str:
    for match in _CLI.finditer(command):
        if match[1] not in _CLI_NAMES:
            supported = ", ".join(f"{{{name}}}" for name in _CLI_NAMES)
            hint = did_you_mean(match[1], _CLI_NAMES)
            raise ValueError(f"unknown placeholder {match[0]}.{hint} Supported: {supported}")
    return command


class HealthCheck(TargetOptions):
    """Asked once before the first answer: a web address, or a command."""

    url: WebAddress | None = Field(default=None, description="Has to answer a GET with 2xx.")
    command: Annotated[str, AfterValidator(_checked_command)] | None = Field(
        default=None, description="Has to end with exit code 0."
    )
    cwd: str | None = Field(default=None, description="As `cwd` of the target.")
    timeout_seconds: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Default: the target's."
    )

    @model_validator(mode="after")
    def _check_way(self) -> HealthCheck:
        if (self.url is None) == (self.command is None):
            raise ValueError("needs either 'url' or 'command'")
        return self


class CliOptions(TargetOptions):
    """Options of a target of kind `cli`."""

    command: Annotated[str, Field(min_length=1), AfterValidator(_checked_command)] = Field(
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

    @field_validator("healthcheck", mode="before")
    @classmethod
    def _ignore_nothing(cls, value: Any) -> Any:
        return value or None


class CliTarget(_ProgramTarget):
    """Runs the program once per item; its answer may have messages, tool calls and measures."""

    placeholder = _CLI
    output_file = "OUTPUT_FILE"

    def __init__(self, options: CliOptions) -> None:
        super().__init__(options.command, options.env)
        self._options = options
        self._health: asyncio.Future[None] | None = None

    async def answer(self, work: Work) -> Evidence:
        """Return what the program answers.

        Raise `TargetError`: of kind `healthcheck` if the target is not healthy, `timeout` if its
        time ran out, else `command`, with the end of what the program wrote.
        """
        if self._options.healthcheck is not None:
            if self._health is None:
                check = self._check_health(self._options.healthcheck, work)
                self._health = asyncio.ensure_future(check)
            # The check goes on for the others when one that waits for it is cancelled.
            await asyncio.shield(self._health)
        options = self._options
        async with self._prepared(work, _prompt_of(with_attachments(work).messages)) as run:
            started = time.perf_counter()
            timeout_s = min(options.timeout_seconds, work.item_timeout_s or options.timeout_seconds)
            cwd = work.workspace or work.folder / (options.cwd or "")
            result = await self._ended(options.command, work, run, cwd=cwd, timeout_s=timeout_s)
            latency_ms = round((time.perf_counter() - started) * 1000, 1)
            return read_answer(self._answer(result, run.output), latency_ms)

    async def _check_health(self, check: HealthCheck, work: Work) -> None:
        timeout_s = check.timeout_seconds or self._options.timeout_seconds
        try:
            if check.url is not None:
                await asyncio.to_thread(_get, check.url, timeout_s)
                return
            cwd = work.workspace or work.folder / (check.cwd or self._options.cwd or "")
            async with self._prepared(work, "") as run:
                await self._ended(check.command or "", work, run, cwd=cwd, timeout_s=timeout_s)
        except (TargetError, OSError) as error:
            raise TargetError("healthcheck", f"the health check failed: {error}") from error

    @asynccontextmanager
    async def _prepared(self, work: Work, prompt: str) -> AsyncIterator[_Run]:
        try:
            files = attached_paths(work.messages, work.folder)
        except EvalError as error:
            raise TargetError("input", str(error)) from error
        async with program_files({"prompt.txt": prompt}) as folder:
            output = folder / "output.json"
            values = {
                "PROMPT": prompt,
                "PROMPT_FILE": str(folder / "prompt.txt"),
                "OUTPUT_FILE": str(output),
                "EVAL_ID": work.case.id,
                "ATTEMPT": str(work.iteration),
            }
            for number, path in enumerate(files):
                values |= {f"FILE_{number}": str(path), f"FILE_{number}_NAME": path.name}
            yield _Run(values, output, files)

    def _references(self, run: _Run, env: dict[str, str]) -> Reference:
        named = super()._references(run, env)

        def reference(name: str, quote: str) -> str:
            if name != "FILES":
                return named(name, quote)
            return " ".join(
                self._options.files_format.replace(
                    "{path}", named(f"FILE_{number}", quote)
                ).replace("{basename}", named(f"FILE_{number}_NAME", quote))
                for number in range(len(run.files))
            )

        return reference


def _prompt_of(messages: Sequence[Message]) -> str:
    """Return the messages as one text: a single message as it is, several each with its role."""
    texts = [(message["role"], content_text(message["content"]).strip()) for message in messages]
    texts = [(role, text) for role, text in texts if text]
    if len(texts) <= 1:
        return "".join(text for _, text in texts)
    return "\n\n".join(f"@[{role.capitalize()}]:\n{text}" for role, text in texts)


def read_answer(text: str, measured_ms: float) -> Evidence:
    """Return the evidence that a program's answer is.

    JSON counts if it is an object with `output` (messages) or `text`; any other answer is the
    output as it stands, with a warning if only its measures have a wrong shape. Without
    `duration_ms` the latency is `measured_ms`.
    """
    value: Any = None
    with suppress(ValueError):
        value = parse(text)
    (text, value), notes = storable((text, value))
    details: Mapping[str, Any] = NOTHING
    try:
        evidence = evidence_in(value, measured_ms) if isinstance(value, dict) else None
    except TargetError as error:
        evidence, details = None, {"warnings": [f"{error}; the answer is taken as it stands"]}
    plain = Evidence(text, metrics=Metrics(latency_ms=measured_ms), details=details)
    return with_warnings(evidence or plain, notes)


def _get(url: str, timeout_s: float) -> None:
    """Raise `OSError` unless a GET of the address is answered with 2xx."""
    from urllib.request import urlopen

    with urlopen(url, timeout=timeout_s):  # noqa: S310 - the option takes web addresses only
        pass
