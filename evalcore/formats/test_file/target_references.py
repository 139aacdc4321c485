"""`execution.targets` of a suite → variants: names, or targets with hooks of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from evalcore.formats.targets import Targets
from evalcore.formats.test_file.shapes import TargetEntry, TargetReference
from evalcore.formats.warnings import CaseWarnings
from evalcore.formats.workspaces import WorkspaceReader
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import path_text
from evalcore.model.target import DEFAULT_VARIANT, Variant

_LOC: Final[Loc] = ("execution", "targets")
_WITHOUT_WORKSPACE: Final = (
    "has no effect: hooks run in a workspace, and the suite has none; add `workspace`"
)
_DEFINED: Final = "has no effect: a target of this name is defined; write another name"


class TargetReferences:
    """The targets that a suite lists. A `use_target` defines its name for the whole suite."""

    def __init__(
        self,
        entries: Sequence[TargetEntry],
        targets: Targets,
        problems: Problems,
        warnings: CaseWarnings,
    ) -> None:
        self._targets, self._problems, self._warnings = targets, problems, warnings
        self._references: dict[str, tuple[Loc, TargetReference]] = {}
        for index, entry in enumerate(entries):
            reference: TargetReference = {"name": entry} if isinstance(entry, str) else entry
            self._add(reference, (*_LOC, index))

    def _add(self, reference: TargetReference, loc: Loc) -> None:
        name = reference["name"]
        if name in self._references:
            if self._references[name][1] != reference:
                self._problems.add(loc, f"'{name}' is listed twice; give one another name")
            return
        self._references[name] = loc, reference
        other = reference.get("use_target")
        if other is None:
            return
        if name in self._targets:
            self._warn((*loc, "use_target"), _DEFINED)
        else:
            definition = {"name": name, "use_target": other}
            self._targets.define(name, definition, loc, self._problems)

    def variants(
        self, workspaces: WorkspaceReader | None, forced: str | None
    ) -> tuple[Variant, ...]:
        """Return a variant for each target, called as it; note targets that there are not.

        With a `forced` target there is the unchanged variant alone, with the hooks that are listed
        for that target. `workspaces` is None for a suite without a workspace.
        """
        if forced is not None:
            return (replace(DEFAULT_VARIANT, hooks=self._hooks(forced, workspaces)),)
        for name, (loc, _) in self._references.items():
            self._targets.use(name, loc, self._problems)
        return tuple(
            Variant(name, name, hooks=self._hooks(name, workspaces)) for name in self._references
        )

    def _hooks(self, name: str, workspaces: WorkspaceReader | None) -> Mapping[str, Any]:
        """Return the hooks of a target; none if it is not listed."""
        loc, reference = self._references.get(name, ((), {"name": name}))
        hooks = reference.get("hooks")
        if not hooks:
            return {}
        if workspaces is None:
            self._warn((*loc, "hooks"), _WITHOUT_WORKSPACE)
            return {}
        return workspaces.hooks_of_target(hooks, (*loc, "hooks"), self._problems)

    def _warn(self, loc: Loc, text: str) -> None:
        path = path_text(loc)
        several = f"{{count}} keys ({{names}}): {text}"
        self._warnings.add(f"{path} {text}", loc, self._problems, name=path, several=several)
