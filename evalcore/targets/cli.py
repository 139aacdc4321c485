"""The target `cli`: a program answers by AgentV's contract (docs/reference/targets.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.errors import EvalError, TargetError
from evalcore.jsonvalues import decoded
from evalcore.judging.prompts import content_text
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.targets.case_messages import Message
from evalcore.targets.cli_answer import read_answer, read_batch
from evalcore.targets.cli_options import PLACEHOLDER, CliOptions, HealthCheck
from evalcore.targets.command_batch import Batches, ProgramAnswer
from evalcore.targets.program_ending import (
    OUTPUT_LIMIT,
    check_ending,
    folder_variables,
    program_error,
    too_long,
)
from evalcore.targets.program_files import program_files
from evalcore.targets.shell_templates import shell_command, variable_reference
from evalcore.targets.work import Work, with_attachments
from evalcore.trust.attachments import attached_paths
from evalcore.trust.commands import run_command
from evalcore.trust.secret_options import telling_values
from evalcore.trust.text import redact

__all__ = ["CliOptions", "CliTarget"]

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
