"""The guide to saved evals does what it says: each block is executed against a real service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import Service, service

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guides/saved-evals.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8321"
END = "---- end of block ----"
pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.xdist_group("service"),
    pytest.mark.skipif(
        shutil.which("curl") is None or shutil.which("jq") is None, reason="no curl or no jq"
    ),
]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path, "--rate", "0") as running:
        yield running


def executed(served: Service, command: list[str], text: str) -> str:
    """Return what a program printed that was given on standard input."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        command,
        input=text.replace(ADDRESS, served.url),
        env={**os.environ, "PATH": path, "EVALCORE_SERVICE": served.url},
        cwd=served.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    return ended.stdout


def shown_after(index: int) -> str:
    """Return the output that the page shows after a block; empty if it shows none."""
    language, text = BLOCKS[index + 1] if index + 1 < len(BLOCKS) else ("", "")
    return text if language == "text" else ""


def without_ids(text: str) -> list[str]:
    """Return the lines with single spaces, and with `…` in place of what stands after a prefix."""
    return [
        re.sub(r"\b(wf|wfevalrun|wfnodeeval)_\w+", r"\1_…", " ".join(line.split()))
        for line in text.splitlines()
    ]


@pytest.mark.extended
def test_every_block_of_the_guide_prints_what_the_page_shows(served: Service) -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "python", "sh", "text", "yaml"}
    assert [text for language, text in BLOCKS if language == "sh"] == [
        "evalcore serve --insecure\n"
    ]
    (definition,) = (text for language, text in BLOCKS if language == "yaml")
    (served.folder / "invoices.yaml").write_text(definition)
    indices = [index for index, (language, _) in enumerate(BLOCKS) if language == "bash"]
    script = "".join(f"{BLOCKS[index][1]}\necho '{END}'\n" for index in indices)
    printed = executed(served, ["bash", "-e"], script).split(f"{END}\n")
    for index, output in zip(indices, printed, strict=False):
        assert without_ids(output) == without_ids(shown_after(index)), BLOCKS[index][1]
    (index,) = (index for index, (language, _) in enumerate(BLOCKS) if language == "python")
    output = executed(served, [sys.executable, "-"], BLOCKS[index][1])
    assert without_ids(output) == without_ids(shown_after(index))
