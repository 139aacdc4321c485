"""The target `command`: a program answers."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evalcore.errors import EvalError, TargetError
from evalcore.jsonvalues import decoded, storable
from evalcore.model.evidence import Evidence, Metrics, with_warnings
from evalcore.model.suite import Case
from evalcore.targets.case_messages import json_text
from evalcore.targets.command_batch import Batches, ProgramAnswer
from evalcore.targets.option_templates import with_template
from evalcore.targets.program_ending import (
    OUTPUT_LIMIT,
    check_ending,
    folder_variables,
    program_error,
    too_long,
)
from evalcore.targets.program_files import program_files
from evalcore.targets.program_options import ProgramSeconds, ProgramVariables
from evalcore.targets.shell_templates import shell_command, variable_reference
from evalcore.targets.work import Work, with_attachments
from evalcore.trust.commands import CommandResult, run_command
from evalcore.trust.secret_options import telling_values
from evalcore.trust.text import redact

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
