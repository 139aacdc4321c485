"""The prompt of a judge that a program writes for each item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.checks.base import STRICT, AssertionValueError, Reader
from evalcore.checks.grader_payload import payload_of
from evalcore.checks.program import DEFAULT_TIMEOUT_MS, Duration, Program, run_program
from evalcore.checks.subject import Subject
from evalcore.declared.base import Declared
from evalcore.declared.types import Text, TextOrTexts, text_or_mapping
from evalcore.judging.prompts import escape_variables
from evalcore.model.assertion import Verdict, broken


@with_config(STRICT)
class PromptProgramShape(TypedDict, total=False):
    """A program that prints the prompt; `script` is another name of `command`."""

    command: TextOrTexts
    script: TextOrTexts
    config: dict[str, Any]
    cwd: Text
    timeout_ms: Duration


PromptValue = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[PromptProgramShape, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


class PromptProgram(Declared):
    """A program that reads what a `code-grader` reads, and prints the prompt."""

    command: TextOrTexts
    config: dict[str, Any] | None = None
    cwd: Text | None = None
    timeout_ms: Annotated[float, Field(gt=0)] = DEFAULT_TIMEOUT_MS

    async def prompt_for(self, subject: Subject) -> str | Verdict:
        """Return the prompt for an item, or the verdict that the program failed.

        What the program prints is no template: it may hold the output, and what looks like a
        variable there is none.
        """
        program = Program(self.command, self.cwd, None, self.timeout_ms)
        payload = payload_of(self.config, subject, "text")
        printed = await run_program(program, payload, subject)
        if isinstance(printed, Verdict):
            return printed
        text = printed.text.strip()
        return escape_variables(text) if text else broken("the prompt's program printed nothing")


def read_prompt(
    written: Any, reader: Reader, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the fields of a check that say its prompt: a text, a file's, or a program's.

    `config` is that of a program without one of its own.
    """
    if not isinstance(written, Mapping):
        return {"prompt": reader.prompt(written)}
    keys = [key for key in ("command", "script") if key in written]
    if len(keys) != 1:
        message = "is a text, or {command, config}: a program that prints the prompt"
        raise AssertionValueError(message, "prompt")
    program = {} if config is None else {"config": dict(config)}
    program |= {key: value for key, value in written.items() if key not in keys}
    return {"prompt": None, "prompt_program": {"command": written[keys[0]], **program}}
