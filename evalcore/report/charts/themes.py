"""The colours of charts on a light and on a dark ground."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ChartTheme:
    """Colours as CSS writes them. `decisions` are pass, fail, inconclusive, error, not decided."""

    ground: str
    text: str
    soft: str
    line: str
    grid: str
    decisions: tuple[str, ...]
    variants: tuple[str, ...]


LIGHT: Final = ChartTheme(
    ground="white",
    text="#24292f",
    soft="#57606a",
    line="#8c959f",
    grid="#eaeef2",
    decisions=("#1a7f37", "#cf222e", "#9a6700", "#8250df", "#57606a"),
    variants=("#0969da", "#bc4c00", "#1b7c83", "#8250df", "#57606a", "#bf3989"),
)
DARK: Final = ChartTheme(
    ground="#111418",
    text="#e3e6ea",
    soft="#a3adb9",
    line="#6b7583",
    grid="#2a3037",
    decisions=("#5cc98a", "#ff8a83", "#e0b455", "#d295ee", "#a3adb9"),
    variants=("#79b0ff", "#ffa657", "#56d4dd", "#d295ee", "#a3adb9", "#ff9bce"),
)
THEMES: Final[Mapping[str, ChartTheme]] = {"light": LIGHT, "dark": DARK}
