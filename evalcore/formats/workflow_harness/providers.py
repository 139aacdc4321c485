"""The providers that the souls of a workflow name: entries of the nearest `targets.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evalcore.errors import LoadError
from evalcore.formats.assertions.graders import Graders
from evalcore.formats.parts.interpolation import variables_for
from evalcore.formats.parts.load_options import LoadOptions
from evalcore.formats.parts.targets_file import Targets
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import suggest

# Known without an entry; their keys come from the environment.
_PROTOCOLS: Final = ("anthropic", "openai")


def judges_of(folder: Path, options: LoadOptions, problems: Problems) -> Graders:
    """Return what reads judges; the nearest `targets.yaml` is opened once one is needed."""
    return Graders(folder, lambda: Targets(None, folder, variables_for(folder, options), problems))


def find_providers(
    names: Mapping[str, Loc], folder: Path, options: LoadOptions, problems: Problems
) -> tuple[dict[str, dict[str, Any]], list[Problems]]:
    """Return `{kind, options}` by name, and the collector of the `targets.yaml`.

    A name that is neither an entry nor `openai` or `anthropic` is noted at its place.
    """
    if not names:
        return {}, []
    try:
        targets = Targets(None, folder, variables_for(folder, options), problems)
    except LoadError as error:
        problems.include(error.problems)
        return {}, []
    for name, loc in names.items():
        if name in targets:
            targets.use(name, loc, problems, without=("model",))  # the soul names it
        elif name not in _PROTOCOLS and targets.complete:
            providers = dict.fromkeys([*targets.names, *_PROTOCOLS])
            problems.add(loc, f"unknown provider '{name}'.{suggest(name, providers)}")
    entries = {
        name: {"kind": target.kind, "options": dict(target.options)}
        for name, target in targets.used.items()
        if name in names
    }
    file_problems = targets.file_problems
    return entries, [] if file_problems is None else [file_problems]
