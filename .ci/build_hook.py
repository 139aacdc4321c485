"""Compile the packages' bytecode when they are installed in place.

`tool.uv.compile-bytecode` does that for dependencies; without it, each start of `evalcore` where
Python may not write bytecode (many containers) would compile every module anew.
"""

from __future__ import annotations

import compileall
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("evalcore",)


class CompileHook(BuildHookInterface[Any]):
    """Runs for editable installs only: installers compile wheels themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Write the bytecode beside the modules; one that does not compile is told later."""
        if version == "editable":
            for package in PACKAGES:
                compileall.compile_dir(Path(self.root) / package, quiet=2)
