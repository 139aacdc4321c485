"""Little files that would take much memory are refused before it is taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from evalcore.planning.spool import LARGEST_FRAME_BYTES, PlanPartError, decode_part
from tests.unit.formats.loading import problems_of

MIB = 2**20
# The interpreter with what it has loaded, and what the file may take.
MEMORY_MIB = 1_400

READ = f"""
import resource, sys
from pathlib import Path
from evalcore.errors import LoadError
from evalcore.formats.documents import read_document
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_MIB * MIB}, {MEMORY_MIB * MIB}))
path = Path(sys.argv[1])
path.write_text(sys.argv[2] + sys.argv[3] * (20_000_000 // len(sys.argv[3])) + sys.argv[4])
try:
    read_document(path)
except LoadError as error:
    print(error.problems[0].message)
"""

TOO_MANY = "holds too many values for one document"
BOMBS = {
    "lists of nothing, with an anchor": ("a.yaml", "x: &y 1\na: [", "[],", "]\n", TOO_MANY),
    "JSON of nothing": ("a.json", '{"a": [', "[],", "1]}", TOO_MANY),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "begin", "part", "end", "message"), BOMBS.values(), ids=BOMBS)
def test_a_document_of_twenty_megabytes_takes_little_memory(
    tmp_path: Path, name: str, begin: str, part: str, end: str, message: str
) -> None:
    command = [sys.executable, "-c", READ, str(tmp_path / name), begin, part, end]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert message in ended.stdout


def test_a_plan_part_is_not_opened_beyond_its_bound() -> None:
    bomb = zstandard.ZstdCompressor().compress(b"\0" * (LARGEST_FRAME_BYTES + MIB))
    assert len(bomb) < MIB

    with pytest.raises(PlanPartError, match="says that it holds"):
        decode_part(bomb)


def test_a_line_without_an_end_is_a_mistake_and_the_lines_after_it_are_read(tmp_path: Path) -> None:
    good = '{"id": "a", "input": "x", "output": "y", "assertions": [{"type": "is-json"}]}'
    text = f'{good}\n{{"id": "b", "input": "{"x" * (40 * MIB)}"}}\n{good}\n'
    first, second = problems_of(tmp_path, text, "cases.jsonl")

    assert (first.line, "a line of more than 16 MiB" in first.message) == (2, True)
    assert (second.line, "duplicate test id 'a'" in second.message) == (3, True)
