"""A suite that stands in a file, where a suite of `define_suite` may stand as well."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalcore.errors import LoadError, Problem, UsageError
from evalcore.formats.options import LoadOptions
from evalcore.model.suite import Suite
from evalcore.pipeline.plan import load
from evalcore.suites.suite_module import SUFFIX, load_module_suites
from evalcore.trust.imports import ImportPolicy, root_modules
from evalcore.wording import missing_file


@dataclass(frozen=True, slots=True)
class SuiteInFile:
    """The path of a suite in any format; a Python file has to have one suite."""

    path: Path

    def read(self, options: LoadOptions, *, baseline: str | None = None) -> Suite:
        """Return the suite, compared with the variant `baseline` if that is named.

        Raises `LoadError` with every mistake in the file, `UsageError` for a Python file of several
        suites.
        """
        name = str(self.path)
        if not self.path.exists():
            raise LoadError((Problem(name, None, "", missing_file(self.path)),))
        # A notebook runs a file again after a change.
        root_modules().forget_changed()
        if baseline is not None:
            options = replace(options, baseline=baseline)
        if self.path.suffix != SUFFIX:
            return load(self.path, options)
        roots = (self.path.resolve().parent, Path.cwd())
        allowed = options.allow_imports or ()
        suites = load_module_suites(self.path, options, ImportPolicy(roots, allowed))
        if len(suites) > 1:
            names = ", ".join(suite.definition.name for suite in suites)
            raise UsageError(f"{name} has {len(suites)} suites ({names}): import the one to run")
        return suites[0]


def as_suite_file(suite: Any) -> SuiteInFile | None:
    """Return the file that a path names; None for what is no path."""
    return SuiteInFile(Path(suite)) if isinstance(suite, str | os.PathLike) and suite else None
