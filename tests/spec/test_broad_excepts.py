"""Each handler that catches everything has its reason, on its line or beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BROAD = {"Exception", "BaseException"}


def handlers(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number of each broad handler of a file, and the lines around it."""
    text = path.read_text("utf-8")
    if "except" not in text:
        return
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and is_broad(node):
            yield node.lineno, lines[node.lineno - 2 : node.lineno + 1]


def is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = (node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name))
    return bool(BROAD & set(names))


def has_reason(around: list[str]) -> bool:
    above, line, below = around
    beside = line.partition("#")[2].replace("noqa: BLE001", "").strip(" -()")
    return bool(beside) or any(each.strip().startswith("# ") for each in (above, below))


def test_each_broad_except_has_its_reason() -> None:
    listed = {
        f"{path.relative_to(ROOT)}:{number}": around
        for path in sorted((ROOT / "evalcore").rglob("*.py"))
        for number, around in handlers(path)
    }
    assert len(listed) > 5
    assert [place for place, around in listed.items() if not has_reason(around)] == []
