"""Hooks: programs that are told of a workspace before and after the tests in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from evalcore.errors import EvalError, TargetError
from evalcore.model.workspace import Hook, HookName
from evalcore.trust.commands import CommandResult, run_command
from evalcore.trust.files import place_inside
from evalcore.trust.text import last_words

_VARIABLE: Final = re.compile(r"\{\{\s*(workspace_path|test_id|eval_run_id)\s*\}\}")
_TAIL_CHARACTERS: Final = 2_000


class Told(NamedTuple):
    """What hooks are told: of no test where the workspace is several tests'."""

    workspace_path: str
    eval_run_id: str
    test_id: str | None = None
    case_input: Any = None
    case_metadata: Mapping[str, Any] = {}

    def as_json(self) -> bytes:
        """Return it as a hook's standard input has it."""
        told = {
            "workspace_path": self.workspace_path,
            "test_id": self.test_id,
            "eval_run_id": self.eval_run_id,
            "case_input": self.case_input,
            "case_metadata": dict(self.case_metadata),
        }
        return orjson.dumps(told, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)


async def run_hook(name: HookName, hook: Hook, told: Told, folder: Path) -> None:
    """Run a hook to its end, from the suite's `folder`.

    In an array `{{workspace_path}}`, `{{test_id}}` and `{{eval_run_id}}` are replaced; a shell has
    them in its environment. Raise `TargetError` that says how the hook failed; when its time is
    over it is killed together with everything that it has started.
    """
    texts = {
        "workspace_path": told.workspace_path,
        "test_id": told.test_id or "",
        "eval_run_id": told.eval_run_id,
    }
    command: str | list[str]
    if isinstance(hook.command, str):
        command = hook.command
    else:
        command = [_VARIABLE.sub(lambda match: texts[match[1]], part) for part in hook.command]
    result = await run_command(
        command,
        stdin=told.as_json(),
        cwd=_folder_of(hook, folder),
        timeout_s=hook.timeout_s,
        env={
            "EVALCORE_WORKSPACE": told.workspace_path,
            "EVALCORE_TEST_ID": texts["test_id"].replace("\0", ""),
            "EVALCORE_RUN_ID": told.eval_run_id,
        },
    )
    ending = _ending(result, hook.timeout_s)
    if ending is None:
        return
    said = (result.stderr.strip() or result.stdout).decode(errors="replace")
    tail = last_words(said)[-_TAIL_CHARACTERS:]
    message = f"the hook {name} {ending}"
    raise TargetError("workspace", f"{message}: {tail}" if tail else message)


def _folder_of(hook: Hook, folder: Path) -> Path:
    if not hook.cwd:
        return folder
    try:
        return place_inside(folder, hook.cwd)
    except EvalError as error:
        raise TargetError("workspace", str(error)) from error


def _ending(result: CommandResult, timeout_s: float) -> str | None:
    """Return in what way a hook failed; None if it did not."""
    if result.timed_out:
        return f"took longer than {timeout_s:g} s and was killed"
    if result.exit_code < 0:
        return f"was killed by signal {-result.exit_code}"
    return f"ended with exit code {result.exit_code}" if result.exit_code else None
