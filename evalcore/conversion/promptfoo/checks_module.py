"""The Python module beside a suite: promptfoo's own Python, called as promptfoo calls it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evalcore.conversion.converted import MODULE
from evalcore.conversion.promptfoo.files import NotTakenOverError

_HEAD: Final = '''"""The Python of the promptfoo configuration beside this file."""

import json


def called(function, output, context, threshold, parsed=False):
    """Return what a function of promptfoo says, as evalcore reads it."""
    output = json.loads(output) if parsed else output
    metadata = context["metadata"] or {}
    context = {**context, "vars": metadata.get("vars", {}), "prompt": context["input"]}
    answer = function(output, context)
    if hasattr(answer, "__dict__"):
        answer = vars(answer)
    if isinstance(answer, str) and answer.lower() in ("true", "false"):
        answer = answer.lower() == "true"
    elif isinstance(answer, str):
        answer = json.loads(answer)
    if isinstance(answer, bool):
        return answer
    if isinstance(answer, dict):
        score = float(answer.get("score", 1 if passes(answer) else 0))
        enough = threshold is None or score >= threshold
        passed, reason = passes(answer) and enough, str(answer.get("reason") or "")
        return {"passed": passed, "score": min(max(score, 0.0), 1.0), "reason": reason}
    passed = answer > 0 if threshold is None else answer >= threshold
    return {"passed": passed, "score": min(max(float(answer), 0.0), 1.0), "reason": str(answer)}


def passes(answer):
    """Return whether a grading result says that the output passes."""
    return bool(answer.get("pass", answer.get("pass_", False)))
'''

_PROVIDED: Final = '''

def {name}(input, *, context):
    """Answer as promptfoo's provider {file} does."""
    from {module} import {function}

    variables = (context.metadata or {{}}).get("vars", {{}})
    prompt = input if isinstance(input, str) else json.dumps(input)
    answer = {function}(prompt, {{"config": {config!r}}}, {{"vars": variables}})
    if answer.get("error"):
        raise RuntimeError(answer["error"])
    return answer["output"]
'''


class ChecksModule:
    """Collects the functions of the module; `folder` is the configuration's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._functions: list[str] = []
        self._names: dict[tuple[Any, ...], str] = {}

    def callable(self, name: str) -> str:
        """Return how the suite names a function of the module."""
        return f"{MODULE}:{name}"

    @property
    def text(self) -> str | None:
        """The module's text, None if nothing is in it."""
        return _HEAD + "".join(self._functions) if self._functions else None

    def add_inline(self, code: str, threshold: float | None, *, is_parsed: bool) -> str:
        """Add an assertion that is Python itself; return its name."""
        key = ("inline", code, threshold, is_parsed)
        if key not in self._names:
            name = self._name(key, "check")
            lines = code.strip("\n")
            body = textwrap.dedent(lines) if "\n" in lines else f"return {lines.strip()}"
            try:
                compile(
                    f"def check(output, context):\n{textwrap.indent(body, '    ')}", name, "exec"
                )
            except SyntaxError as error:
                del self._names[key]
                raise NotTakenOverError(f"it is no Python: {error.msg}") from error
            self._functions.append(
                f"\n\ndef {name}(output, context):\n"
                '    """An assertion of the configuration."""\n\n'
                f"    def check(output, context):\n{textwrap.indent(body, '        ')}\n\n"
                f"    return called(check, output, context, {threshold!r}{_flag(is_parsed)})\n"
            )
        return self._names[key]

    def add_file(
        self, file: str, function: str, threshold: float | None, *, is_parsed: bool
    ) -> str:
        """Add an assertion in a Python file; return its name; raise `NotTakenOverError`."""
        key = ("file", file, function, threshold, is_parsed)
        if key not in self._names:
            module = self._module_of(file)
            name = self._name(key, "check")
            self._functions.append(
                f"\n\ndef {name}(output, context):\n"
                f'    """The assertion {function} of {file}."""\n'
                f"    from {module} import {function}\n\n"
                f"    return called({function}, output, context, {threshold!r}{_flag(is_parsed)})\n"
            )
        return self._names[key]

    def add_provider(self, file: str, function: str, config: Mapping[str, Any]) -> str:
        """Add a provider in a Python file; return its name; raise `NotTakenOverError`."""
        key = ("provider", file, function, repr(config))
        if key not in self._names:
            module = self._module_of(file)
            name = self._name(key, "provider")
            self._functions.append(
                _PROVIDED.format(
                    name=name, file=file, module=module, function=function, config=dict(config)
                )
            )
        return self._names[key]

    def _name(self, key: tuple[Any, ...], kind: str) -> str:
        self._names[key] = f"{kind}_{len(self._names) + 1}"
        return self._names[key]

    def _module_of(self, file: str) -> str:
        """Return how the suite imports a file; it has to be in the configuration's folder."""
        path = self._folder / file
        try:
            parts = path.resolve().relative_to(self._folder.resolve()).with_suffix("").parts
        except ValueError:
            raise NotTakenOverError(f"{file} is outside of the configuration's folder") from None
        if not path.is_file():
            raise NotTakenOverError(f"{file}: no such file")
        if not all(part.isidentifier() for part in parts):
            raise NotTakenOverError(f"{file} is no name of a Python module")
        return ".".join(parts)


def _flag(is_parsed: bool) -> str:
    return ", parsed=True" if is_parsed else ""
