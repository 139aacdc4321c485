"""Hooks: programs that run before and after the tests of a workspace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from evalcore.errors import EvalError, TargetError
from evalcore.model.exchange import message_array
from evalcore.model.suite import Hook
from evalcore.trust.commands import run_command
from evalcore.trust.files import place_inside
from evalcore.trust.text import last_words

_VARIABLE: Final = re.compile(r"\{\{\s*(workspace_path|test_id|eval_run_id)\s*\}\}")


class HookInput(NamedTuple):
    """The input of hooks; without a test where several tests share the workspace.

    A hook reads `case_input` as an array of messages.
    """

    workspace_path: str
    eval_run_id: str
    test_id: str | None = None
    case_input: Any = None
    case_metadata: Mapping[str, Any] = {}

    def as_json(self) -> bytes:
        """Return the JSON line for a hook's standard input."""
        document = {
            "workspace_path": self.workspace_path,
            "test_id": self.test_id,
            "eval_run_id": self.eval_run_id,
            "case_input": None if self.test_id is None else message_array(self.case_input, "user"),
            "case_metadata": dict(self.case_metadata),
        }
        return orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE)


async def run_hook(name: str, hook: Hook, hook_input: HookInput, folder: Path) -> None:
    """Run a hook to its end, from the suite's `folder`.

    In an array `{{workspace_path}}`, `{{test_id}}` and `{{eval_run_id}}` are replaced; a shell has
    them in its environment. Raise `TargetError` that says how the hook failed; when its time is
    over it is killed together with everything that it has started.
    """
    variables = {
        "workspace_path": hook_input.workspace_path,
        "test_id": hook_input.test_id or "",
        "eval_run_id": hook_input.eval_run_id,
    }
    command: str | list[str]
    if isinstance(hook.command, str):
        command = hook.command
    else:
        command = [_VARIABLE.sub(lambda match: variables[match[1]], part) for part in hook.command]
    try:
        cwd = place_inside(folder, hook.cwd) if hook.cwd else folder
    except EvalError as error:
        raise TargetError("workspace", str(error)) from error
    result = await run_command(
        command,
        stdin=hook_input.as_json(),
        cwd=cwd,
        timeout_s=hook.timeout_s,
        env={
            "EVALCORE_WORKSPACE": hook_input.workspace_path,
            "EVALCORE_TEST_ID": variables["test_id"].replace("\0", ""),
            "EVALCORE_RUN_ID": hook_input.eval_run_id,
        },
    )
    ending = result.failure(hook.timeout_s)
    if not ending:
        return
    output = (result.stderr.strip() or result.stdout).decode(errors="replace")
    tail = last_words(output)
    message = f"the hook {name} {ending}"
    raise TargetError("workspace", f"{message}: {tail}" if tail else message)
