"""`evalcore run --watch`: a round after each save; an interrupt ends it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shell import INLINE, evalcore, start

SUITE = """\
name: watched
targets: [{name: t, provider: python, callable: 'target:answer'}]
execution: {target: t}
tests:
  - {id: a, input: first, assertions: [{type: contains, value: yes}]}
  - {id: b, input: second, assertions: [{type: contains, value: yes}]}
"""
HELPER = "ANSWERS = {'first': 'yes', 'second': 'yes', 'third': 'yes'}\n"


class Watch:
    """A watch of `s.yaml` in a folder, and what it has printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._out = folder.parent / "out.txt"
        self._read = 0
        self.process: subprocess.Popen[bytes] = start(
            "run",
            "--watch",
            "s.yaml",
            store=folder / ".evalcore",
            cwd=folder,
            out=self._out,
            env=INLINE,
        )

    def until(self, pattern: str) -> str:
        """Wait for a line; return what was printed up to it since the last call."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            text = self._out.read_text("utf-8")[self._read :]
            if match := re.search(pattern, text):
                self._read += match.end()
                return text[: match.end()]
            assert self.process.poll() is None, text
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in {text!r}")


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "s.yaml").write_text(SUITE)
    (folder / "target.py").write_text(
        "from helper import ANSWERS\ndef answer(prompt): return ANSWERS[prompt]\n"
    )
    (folder / "helper.py").write_text(HELPER)
    watch = Watch(folder)
    yield watch
    if watch.process.poll() is None:
        watch.process.terminate()
        watch.process.wait(60)


def save(path: Path, text: str) -> None:
    """Write as editors do: beside the file, then in its place; its second does not change."""
    moment_ns = path.stat().st_mtime_ns
    beside = path.with_name(f".{path.name}.swp")
    beside.write_text(text)
    os.utime(beside, ns=(moment_ns + 1_000_000,) * 2)
    beside.replace(path)


def test_each_save_runs_again_with_the_code_of_now(watch: Watch) -> None:
    watch.until("2 passed")
    watch.until("watching; Ctrl-C ends\n")
    time.sleep(1.0)  # the folder is watched a moment later
    # Of the same size and second: the bytecode of the first version must not be taken.
    save(watch.folder / "helper.py", HELPER.replace("'second': 'yes'", "'second': 'no!'"))
    watch.until(r"helper\.py changed\n")
    watch.until("1 passed, 1 failed")
    watch.until("watching; Ctrl-C ends\n")

    watch.process.send_signal(signal.SIGINT)
    assert watch.process.wait(60) == 130
    listed = json.loads(evalcore("runs", "list", "--json", store=watch.folder / ".evalcore").out)
    assert [run["state"] for run in listed] == ["completed"] * 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--resume", "latest"], "--watch runs suite files; it takes no --resume"),
        ([], "name at least one suite file: evalcore run SUITE… --watch"),
    ],
)
def test_what_cannot_be_watched_is_a_usage_error(flags: list[str], message: str) -> None:
    refused = evalcore("run", "--watch", *flags)
    assert refused.code == 2
    assert message in refused.err
