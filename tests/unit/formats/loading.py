"""Loading suites that a test writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from evalcore.errors import LoadError, Problem, UsageError
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.suite import Case, Suite

SUITE = "suite.eval.yaml"


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")


def load_text(folder: Path, text: str, name: str = SUITE, **options: Any) -> Suite:
    write(folder, {name: text})
    return load_suite(folder / name, LoadOptions(**options), name=name)


def cases_of(folder: Path, text: str, name: str = SUITE, **options: Any) -> dict[str, Case]:
    return {case.id: case for case in load_text(folder, text, name, **options).cases}


def problems_of(folder: Path, text: str, name: str = SUITE, **options: Any) -> tuple[Problem, ...]:
    with pytest.raises(LoadError) as raised:
        load_text(folder, text, name, **options)
    return raised.value.problems


def usage_error_of(folder: Path, text: str, name: str = SUITE, **options: Any) -> str:
    with pytest.raises(UsageError) as raised:
        load_text(folder, text, name, **options)
    return str(raised.value)


def places_of(problems: tuple[Problem, ...]) -> list[tuple[int | None, str]]:
    return [(problem.line, problem.path) for problem in problems]
