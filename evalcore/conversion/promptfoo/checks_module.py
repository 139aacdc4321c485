"""The Python module beside a suite: promptfoo's own Python, called as promptfoo calls it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from evalcore.conversion.converted import MODULE
from evalcore.conversion.promptfoo.files import NotTakenOverError
from evalcore.conversion.promptfoo.module_text import (
    ANSWERED,
    CHECKS,
    COMPARED,
    HEAD,
    PROVIDER,
    PROVIDER_HEAD,
)

PARSED: Final = "parsed(output)"
UNCHANGED: Final = "output"
"""What an assertion gets: an expression of the module."""


class ChecksModule:
    """Collects the functions of the module; `folder` is the configuration's.

    `imported_files` are those that the functions import, as the configuration names them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._functions: list[str] = []
        self._names: dict[tuple[Any, ...], str] = {}
        self._compares = self._answers = False
        self.imported_files: dict[str, None] = {}

    def callable(self, name: str) -> str:
        """Return how the suite names a function of the module."""
        return f"{MODULE}:{name}"

    @property
    def text(self) -> str | None:
        """The module's text, None if nothing is in it."""
        if not self._functions:
            return None
        head = PROVIDER_HEAD if self._answers else HEAD
        shared = (ANSWERED if self._answers else "") + (COMPARED if self._compares else "")
        return head + CHECKS + shared + "".join(self._functions)

    def add_inline(self, code: str, threshold: float | None, output: str) -> str:
        """Add an assertion that is Python itself; return its name."""
        key = ("inline", code, threshold, output)
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
                f"    return called(check, {output}, context, {threshold!r})\n"
            )
        return self._names[key]

    def add_file(self, file: str, function: str, threshold: float | None, output: str) -> str:
        """Add an assertion in a Python file; return its name; raise `NotTakenOverError`."""
        key = ("file", file, function, threshold, output)
        if key not in self._names:
            module = self._module_of(file)
            name = self._name(key, "check")
            self._functions.append(
                f"\n\ndef {name}(output, context):\n"
                f'    """The assertion {function} of {file}."""\n'
                f"    from {module} import {function}\n\n"
                f"    return called({function}, {output}, context, {threshold!r})\n"
            )
        return self._names[key]

    def add_provider(self, file: str, function: str, identity: str) -> str:
        """Add a provider in a Python file; return its name; raise `NotTakenOverError`.

        `identity` is the provider's id in the configuration.
        """
        key = ("provider", file, function, identity)
        self._answers = True
        if key not in self._names:
            module = self._module_of(file)
            name = self._name(key, "provider")
            self._functions.append(
                PROVIDER.format(
                    name=name, file=file, module=module, function=function, identity=identity
                )
            )
        return self._names[key]

    def add_transform(self, steps: Sequence[Sequence[str | int] | tuple[str, str]]) -> str:
        """Add a chain of transforms; return the expression of what it makes of the output.

        A step is a path, or the file and the function of a program. Raises `NotTakenOverError`.
        """
        key = ("transform", repr(steps))
        self._compares = True
        if key not in self._names:
            lines = ["    output = parsed(output)"] if isinstance(steps[0], list) else []
            for step in steps:
                if isinstance(step, list):
                    path = "".join(f", {part!r}" for part in step)
                    lines.append(f"    output = step_into(output{path})")
                    continue
                file, function = step
                lines.append(f"    from {self._module_of(str(file))} import {function}\n")
                lines.append(f"    output = {function}(output, context_of(context))")
            name = self._name(key, "transform")
            self._functions.append(
                f"\n\ndef {name}(output, context):\n"
                '    """Transform an output as the configuration does."""\n'
                + "\n".join(lines)
                + "\n    return output\n"
            )
        return f"{self._names[key]}(output, context)"

    def add_comparison(self, output: str) -> str:
        """Add an assertion that compares what a transform makes; return its name."""
        key = ("comparison", output)
        if key not in self._names:
            name = self._name(key, "check")
            self._functions.append(
                f"\n\ndef {name}(output, context):\n"
                '    """Compare a transformed output as the assertion says."""\n'
                f'    return compared({output}, context["config"])\n'
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
        self.imported_files[file] = None
        return ".".join(parts)
