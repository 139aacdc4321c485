"""The options of the target `cli`, AgentV's command target."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

from evalcore.mistakes.wording import did_you_mean
from evalcore.providers.chat import WebAddress
from evalcore.targets.program_options import ProgramSeconds, ProgramVariables

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
