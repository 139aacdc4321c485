"""The models that promptfoo's graded assertions ask, as targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.conversion.converted import Notes, note_default_judge
from evalcore.conversion.promptfoo.providers import Providers

_DEFAULT: Final = "openai:gpt-4.1-2025-04-14"  # promptfoo's own
_NOTE: Final = (
    "graded by a model: the judge answers evalcore's prompt with a score, which passes from "
    "'threshold' on, else from 0.8"
)


class GradingProviders:
    """Finds the judge of an assertion; the first one is called `judge`."""

    def __init__(self, providers: Providers, notes: Notes) -> None:
        self._providers, self._notes = providers, notes
        self._names: dict[str, str | None] = {}

    @property
    def targets(self) -> list[Mapping[str, Any]]:
        """The targets that grade."""
        return [self._providers.targets[name] for name in self._names.values() if name]

    def config(self, written: Any, position: str) -> dict[str, Any]:
        """Return the `config` that names the judge, empty for the first one."""
        self._notes.add(_NOTE)
        if isinstance(written, Mapping) and "text" in written:
            written = written["text"]
        name = self._name(written, position) if written else None
        if name is None and (name := self._name(_DEFAULT, position)) is not None:
            judge = self._providers.targets[name]
            note_default_judge(self._notes, judge, "promptfoo's default", position)
        return {} if name == "judge" else {"config": {"judge": name}}

    def _name(self, written: Any, position: str) -> str | None:
        key = repr(written)
        if key not in self._names:
            number = sum(name is not None for name in self._names.values()) + 1
            label = "judge" if number == 1 else f"judge-{number}"
            target = self._providers.read(written, f"{position}.provider", label)
            self._names[key] = target["name"] if target else None
        return self._names[key]
