"""Whoever catches everything says why, on that line or beside it (design/style.md, Errors)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROAD = {"Exception", "BaseException"}


def broad_handlers() -> Iterator[tuple[Path, int]]:
    for package in ("evalcore", "flows", "deployments"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ExceptHandler) and is_broad(node):
                    yield path, node.lineno


def is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(isinstance(one, ast.Name) and one.id in BROAD for one in ast.walk(handler.type))


HANDLERS = list(broad_handlers())


@pytest.mark.parametrize(
    ("path", "number"),
    [pytest.param(*one, id=f"{one[0].relative_to(ROOT)}:{one[1]}") for one in HANDLERS],
)
def test_a_broad_except_has_its_reason(path: Path, number: int) -> None:
    above, line, below = path.read_text().splitlines()[number - 2 : number + 1]
    beside = line.partition("#")[2].replace("noqa: BLE001", "").strip(" -()")
    assert beside or any(one.strip().startswith("# ") for one in (above, below))


def test_broad_excepts_are_found() -> None:
    assert len(HANDLERS) > 5
