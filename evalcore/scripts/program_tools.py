"""Tools that start programs: a script of bash or Python, or a process."""

from __future__ import annotations

import sys
from typing import Any, Final

from evalcore.scripts.failure import ToolError
from evalcore.scripts.iteration import Iteration, Scope, WaitingTool
from evalcore.scripts.tool_parameters import ToolParameter, checked_input, json_schema

_SCRIPT: Final = ToolParameter(name="script", type="str")
_TIMEOUT: Final = ToolParameter(name="timeout", type="int", default=30)
_PARAMETERS: Final = {
    "bash": (_SCRIPT, _TIMEOUT),
    "run_python_script": (_SCRIPT, _TIMEOUT),
    "run_process": (
        ToolParameter(name="command", type="str"),
        ToolParameter(name="args", type="list[str]", default=[]),
        _TIMEOUT,
    ),
}
_DESCRIPTIONS: Final = {
    "bash": "Executes a bash script and returns its output.",
    "run_python_script": "Runs a Python script and returns its output.",
    "run_process": "Runs a program and returns its output.",
}
PROGRAMS: Final = tuple(_PARAMETERS)


class ProgramTool(WaitingTool):
    """Starts a program in the suite's folder, if the import policy lets it start programs."""

    def __init__(self, name: str, kind: str) -> None:
        """Take one of `PROGRAMS`."""
        self.name = name
        self.description = _DESCRIPTIONS[kind]
        self._kind = kind
        self._parameters = _PARAMETERS[kind]

    def parameters(self) -> tuple[str, ...] | None:
        """Return the parameters of a call."""
        return tuple(parameter.name for parameter in self._parameters)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        return json_schema(self._parameters)

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return the standard output; raise `ToolError` for another exit code than 0."""
        from evalcore.trust.commands import run_command
        from evalcore.trust.text import last_words

        run.imports.check_command(f"tool '{self.name}'")
        values = checked_input(self.name, self._parameters, params)
        timeout_s = max(1, values["timeout"])
        ended = await run_command(self._words(values), cwd=run.folder, timeout_s=timeout_s)
        if ended.timed_out:
            message = f"{self.name}: it took longer than {values['timeout']} s"
            raise ToolError("TimeoutError", message)
        if ended.exit_code:
            tail = last_words(ended.stderr.decode(errors="replace"))
            message = f"{self.name}: exit code {ended.exit_code}"
            raise ToolError("RuntimeError", f"{message}: {tail}" if tail else message)
        return ended.stdout.decode(errors="replace")

    def _words(self, values: dict[str, Any]) -> list[str]:
        """Return the program with its arguments."""
        if self._kind == "run_process":
            return [values["command"], *values["args"]]
        program = "bash" if self._kind == "bash" else sys.executable
        return [program, "-c", values["script"]]
