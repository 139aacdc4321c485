"""Warnings about single cases: more than three that say the same are one line."""

from __future__ import annotations

from dataclasses import dataclass, field

from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems

_MAX_NAMES = 3
_MOST_LISTED = 200


@dataclass(slots=True)
class _Group:
    count: int = 0
    names: list[str] = field(default_factory=list)
    texts: dict[str, None] = field(default_factory=dict)


class CaseWarnings:
    """Collects warnings about cases; in strict mode each is a mistake instead."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._groups: dict[str, _Group] = {}

    def add(self, text: str, loc: Loc, problems: Problems, *, name: str, several: str) -> None:
        """Keep a warning about what stands at `loc` and is called `name`.

        `several` replaces more than three texts that share it: `{count}` is their number, `{names}`
        the first of their names, `{all_names}` up to 200.
        """
        if self._strict:
            problems.add(loc, text.removeprefix(f"{name}: "))
            return
        group = self._groups.setdefault(several, _Group())
        group.count += 1
        if len(group.names) < _MOST_LISTED:
            group.names.append(name)
        if len(group.texts) < _MAX_NAMES:
            group.texts[text] = None

    def add_replaced(self, name: str, loc: Loc, problems: Problems) -> None:
        """Keep a warning for each thing that was replaced in the row that is being read."""
        for note in problems.replaced:
            several = f"{{count}} tests ({{names}}): {note}"
            self.add(f"{name}: {note}", loc, problems, name=name, several=several)

    @property
    def texts(self) -> list[str]:
        """The warnings, in the order of the first of each."""
        texts: list[str] = []
        for several, group in self._groups.items():
            few = group.count <= _MAX_NAMES
            texts += group.texts if few else [_line(several, group)]
        return texts


def _line(several: str, group: _Group) -> str:
    most = _MOST_LISTED if "{all_names}" in several else _MAX_NAMES
    more = ["…"] if group.count > most else []
    names = ", ".join([*group.names[:most], *more])
    several = several.replace("{all_names}", "{names}")
    return several.replace("{count}", str(group.count)).replace("{names}", names)
