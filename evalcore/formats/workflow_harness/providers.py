"""The providers that the souls of a workflow name: of `targets.yaml` or `custom/providers`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from evalcore.errors import LoadError
from evalcore.formats.graders import Graders
from evalcore.formats.options import LoadOptions
from evalcore.formats.targets import Targets
from evalcore.formats.variables import interpolate, variables_for
from evalcore.formats.workflow_harness.custom_files import CustomFiles
from evalcore.problems import Problems
from evalcore.trust.secrets import is_secret_path
from evalcore.wording import Loc, suggest

# Known without an entry; their keys come from the environment.
_PROTOCOLS: Final = ("anthropic", "openai")


def judges_of(folder: Path, options: LoadOptions, problems: Problems) -> Graders:
    """Return what reads judges; the nearest `targets.yaml` is opened once one is needed."""
    return Graders(
        folder,
        lambda: Targets(
            None, folder, variables_for(folder, options), problems, strict=options.strict
        ),
    )


def find_providers(
    names: Mapping[str, Loc], folder: Path, options: LoadOptions, problems: Problems
) -> tuple[dict[str, dict[str, Any]], list[Problems]]:
    """Return `{kind, options}` by name, and the collectors of the files that have them.

    A provider is an entry of the `targets.yaml`, else a file `custom/providers/NAME.yaml`. A name
    that is neither, nor `openai` or `anthropic`, is noted at its place.
    """
    if not names:
        return {}, []
    variables = variables_for(folder, options)
    try:
        targets = Targets(None, folder, variables, problems, strict=options.strict)
    except LoadError as error:
        problems.include(error.problems)
        return {}, []
    custom = CustomFiles(folder)
    for name, loc in names.items():
        files = len(custom.file_problems)
        if name not in targets and (manifest := custom.provider(name)) is not None:
            raw, in_file = manifest
            raw = interpolate(raw, variables, (), in_file, is_secret_path)
            targets.define(name, raw, (), in_file)
        if name in targets:
            targets.use(name, loc, problems, without=("model",))  # the soul names it
        elif len(custom.file_problems) > files:
            continue  # its file is wrong
        elif name not in _PROTOCOLS and targets.complete:
            providers = dict.fromkeys([*targets.names, *_PROTOCOLS])
            advice = f"Write an entry in targets.yaml, or custom/providers/{name}.yaml"
            problems.add(loc, f"unknown provider '{name}'.{suggest(name, providers)} {advice}")
    entries = {
        name: {"kind": target.kind, "options": dict(target.options)}
        for name, target in targets.used.items()
        if name in names
    }
    file_problems = targets.file_problems
    of_targets = [] if file_problems is None else [file_problems]
    return entries, [*of_targets, *custom.file_problems]
