"""Files of tests that several processes read: the cases and the mistakes are those of one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import EvalError
from evalcore.formats.parts import forked_lines
from evalcore.formats.parts.load_options import LoadOptions
from evalcore.formats.parts.raw_test import RawTest
from evalcore.mistakes.problems import Problems
from evalcore.model.suite import Suite
from evalcore.pipeline.plan import load
from evalcore.planning import spool
from evalcore.planning.spool import CaseSpool

# A block that this process reads, and half a block that a fork reads.
PART_CASES = 100
LINES = 150


def line(number: int, **more: Any) -> str:
    """Return a case as a line of JSON."""
    case = {"id": f"c{number}", "input": "x", "fixtures": {"output": f"a{number}"}}
    checks = [{"type": "contains", "value": f"a{number}"}, {"type": "is-json"}]
    return json.dumps({**case, "assertions": checks, **more})


def write_lines(folder: Path, replaced: dict[int, str], end: str = "\n") -> Path:
    """Write the file, some of its lines replaced."""
    path = folder / "cases.jsonl"
    lines = (replaced.get(number, line(number)) for number in range(LINES))
    path.write_text("\n".join(lines) + end)
    return path


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let small files be worth a fork; return the forks that are made."""
    pids: list[int] = []
    fork = os.fork

    def counted() -> int:
        pid = fork()
        if pid:
            pids.append(pid)
        return pid

    monkeypatch.setattr(forked_lines, "LEAST_BYTES", 1)
    monkeypatch.setattr(forked_lines, "PART_CASES", PART_CASES)
    monkeypatch.setattr(spool, "PART_CASES", PART_CASES)
    monkeypatch.setattr(forked_lines, "can_fork", lambda: True)
    monkeypatch.setattr(os, "fork", counted)
    return pids


def described(path: Path, processes: int) -> Any:
    """Load the suite; return what it is, or what is wrong with it."""
    try:
        suite: Suite = load(path, LoadOptions(processes=processes))
    except EvalError as error:
        return str(error)
    return list(suite.cases), suite.warnings, suite.cases.code_names(), suite.definition


def test_the_blocks_of_a_fork_are_taken(
    tmp_path: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[int] = []
    take_over = CaseSpool.take_over

    def noted(cases_before: CaseSpool, file: Any, facts: Any) -> None:
        cases.append(facts.cases)
        take_over(cases_before, file, facts)

    monkeypatch.setattr(CaseSpool, "take_over", noted)
    path = write_lines(tmp_path, {}, end="")

    assert described(path, 2) == described(path, 1)
    assert len(forks) == 1
    assert cases == [LINES - PART_CASES]


LAST = LINES - 2
OTHERS = {
    "an empty line": {LAST: ""},
    "a line that is no JSON": {LAST: "{"},
    "an unknown check": {LAST: line(LAST, assertions=[{"type": "contian", "value": "x"}])},
    "an id of the first lines": {LAST: line(5)},
    "an id of the same lines": {LAST: line(LAST - 1)},
    "a variable": {LAST: line(LAST, input="${{ EVAL_NAME }}")},
    "a workspace": {LAST: line(LAST, workspace={"template": "."})},
    "a target": {LAST: line(LAST, execution={"target": "default"})},
    "no answer": {LAST: line(LAST, fixtures=None)},
    "a judge": {LAST: line(LAST, assertions=[{"type": "llm-grader", "prompt": "Is it?"}])},
    "criteria that nothing reads": {LAST: line(LAST, criteria="It is polite.")},
    "mistakes in all parts": {3: "{", LAST: "["},
}


@pytest.mark.parametrize("replaced", OTHERS.values(), ids=OTHERS.keys())
def test_lines_that_are_not_plain_are_read_as_by_one_process(
    replaced: dict[int, str], tmp_path: Path, forks: list[int]
) -> None:
    path = write_lines(tmp_path, replaced)

    assert described(path, 2) == described(path, 1)
    assert forks
    for pid in forks:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@pytest.mark.parametrize("blank", [PART_CASES + 5, 2 * PART_CASES - 1, 2 * PART_CASES])
def test_a_fork_reads_no_line_of_the_next_one_instead_of_an_empty_one(
    blank: int, tmp_path: Path, forks: list[int]
) -> None:
    path = tmp_path / "cases.jsonl"
    lines = [line(number) for number in range(3 * PART_CASES)]
    path.write_text("\n".join([*lines[:blank], "", *lines[blank:]]) + "\n")

    assert described(path, 3) == described(path, 1)
    assert len(forks) == 2


def test_a_file_that_changes_after_it_was_cut_is_read_by_this_process(
    tmp_path: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path, {})
    other = {0: " " * 40 + line(0), LAST: line(LAST, input="y")}
    parts = forked_lines._parts

    def cut_and_written_again(path: Path, count: int) -> Any:
        cut = parts(path, count)
        write_lines(tmp_path, other)
        return cut

    monkeypatch.setattr(forked_lines, "_parts", cut_and_written_again)
    cases, *_ = described(path, 2)

    assert forks
    write_lines(tmp_path, other)
    assert cases == described(path, 1)[0]


def refuse() -> None:
    raise BlockingIOError(11, "Resource temporarily unavailable")


@pytest.mark.parametrize(
    "missing", ["os.fork", "evalcore.formats.parts.forked_lines.TemporaryFile"]
)
def test_a_system_that_lets_no_fork_be_made_costs_nothing_but_time(
    missing: str, tmp_path: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path, {})
    alone = described(path, 1)
    monkeypatch.setattr(missing, refuse)

    assert described(path, 2) == alone
    assert not forks


def test_a_fork_whose_parent_has_ended_reads_no_further() -> None:
    rows = iter([RawTest({"fixtures": {"output": "a"}}, (), Problems("x", lambda _: 1))])

    with pytest.raises(forked_lines._NotPlainError):
        next(forked_lines._plain(rows, os.getpid()))


def test_a_long_line_is_counted_in_pieces(
    tmp_path: Path, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked_lines, "_CHUNK_BYTES", 16)
    path = write_lines(tmp_path, {80: line(80, input="x" * 40_000)}, end="")

    assert described(path, 2) == described(path, 1)
    assert len(forks) == 1
