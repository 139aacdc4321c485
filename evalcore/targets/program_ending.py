"""How a program that answers has ended, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from evalcore.errors import TargetError
from evalcore.targets.work import Work
from evalcore.trust.commands import CommandResult
from evalcore.trust.text import last_words, redact

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
