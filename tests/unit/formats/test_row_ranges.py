"""A large file of JSON lines, whose end child processes read: the same cases and mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import LoadError
from evalcore.formats.registry import load_suite
from evalcore.planning import row_ranges
from evalcore.planning.row_ranges import RowRanges
from evalcore.planning.spool import CaseSpool

pytestmark = pytest.mark.multiprocess
LOADER = "evalcore.formats.test_file.loader"
LINES = 12_600
Change = Callable[[list[Any]], object]


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let files of any size be shared with a child; return which took what a child read."""
    shared: list[bool] = []

    class Noted(RowRanges):
        def head(self, *values: Any) -> Iterator[Any]:
            yield from super().head(*values)
            shared.append(bool(self.rest))

    monkeypatch.setattr(f"{LOADER}.usable_cores", lambda: 2)
    monkeypatch.setattr(row_ranges, "_LEAST_BYTES", 0)
    monkeypatch.setattr(f"{LOADER}.RowRanges", Noted)
    return shared


def rows() -> list[Any]:
    assertions = [{"type": "contains", "value": "a"}, {"type": "is-json"}]
    return [
        {"id": f"c{n}", "input": f"q{n}", "output": f"a{n}", "assertions": assertions}
        for n in range(LINES)
    ]


def written(folder: Path, change: Change) -> Path:
    lines = rows()
    change(lines)
    path = folder / "cases.jsonl"
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts))
    (folder / "cases.yaml").write_text("targets: [{name: other, provider: echo}]\n")
    return path


def told(path: Path) -> tuple[Any, ...]:
    """Return all that a load says of a file: its suite and its parts, or its mistakes."""
    try:
        suite = load_suite(path)
    except LoadError as error:
        return error.problems
    assert isinstance(suite.cases, CaseSpool)
    return suite.definition, suite.warnings, suite.cases.spooled()


@pytest.mark.parametrize(
    ("change", "is_shared"),
    [
        pytest.param(lambda lines: None, True, id="nothing-but-cases"),
        pytest.param(lambda lines: lines[-1].update(tags=1), False, id="mistake-at-the-end"),
        pytest.param(lambda lines: lines[0].update(tags=1), False, id="mistake-at-the-beginning"),
        pytest.param(lambda lines: lines.append("{"), False, id="no-json"),
        pytest.param(lambda lines: lines[-1].update(id="c0"), False, id="id-of-the-beginning"),
        pytest.param(lambda lines: lines[-1].update(id="c9000"), False, id="id-of-another-range"),
        pytest.param(lambda lines: lines[-1].update(criteria="c"), False, id="warning"),
        pytest.param(
            lambda lines: lines[-1].update(execution={"target": "other"}), False, id="target"
        ),
        pytest.param(lambda lines: lines.insert(7, ""), False, id="blank-line"),
    ],
)
def test_a_file_that_is_shared_with_a_child_says_what_it_says_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shared: list[bool],
    change: Change,
    is_shared: bool,
) -> None:
    path = written(tmp_path, change)
    before = told(path)
    assert shared == [is_shared]
    monkeypatch.setattr(f"{LOADER}.usable_cores", lambda: 1)
    assert told(path) == before
