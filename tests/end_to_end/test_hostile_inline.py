"""What can be caught of a Python target in the engine's own process is its item's error."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.support.shell import Ended, Json, evalcore

pytestmark = pytest.mark.multiprocess

CODE: Final = """
import asyncio, os, subprocess, sys, time

class WordlessError(Exception):
    def __str__(self): raise ValueError

async def exits(input): sys.exit(0)
async def interrupts(input): raise KeyboardInterrupt
async def generator_exit(input): raise GeneratorExit
def sync_exit(input): raise SystemExit(0)
def sync_interrupt(input): raise KeyboardInterrupt
def sync_cancelled(input): raise asyncio.CancelledError
def wordless(input): raise WordlessError
def hangs(input): time.sleep(12)
def cyclic(input):
    value = []
    value.append(value)
    return value
def prints(input):
    print("PRINTED")
    os.write(1, b"WRITTEN")
    subprocess.run(["echo", "ECHOED"])
    return "good"
def good(input): return "good"
"""
BAD: Final = (
    "exits", "interrupts", "generator_exit", "sync_exit", "sync_interrupt", "sync_cancelled",
    "wordless", "hangs", "cyclic",
)  # fmt: skip
GOOD: Final = ("prints", "good")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("inline")
    (folder / "mine.py").write_text(CODE)
    names = (*BAD, *GOOD)
    suite = {
        "targets": [
            {"name": name, "provider": "python", "callable": f"mine:{name}", "isolation": "inline"}
            for name in names
        ],
        # Long enough for what answers, also on a busy machine.
        "evalcore": {"limits": {"timeout_s": 5}},
        "tests": [
            {
                "id": name,
                "input": "q",
                "execution": {"target": name},
                "assertions": [{"type": "contains", "value": "good"}],
            }
            for name in names
        ],
    }
    path = folder / "inline.eval.yaml"
    path.write_text(json.dumps(suite))
    return evalcore("run", path, "--json", store=folder / "s", cwd=folder)


@pytest.fixture(scope="module")
def items(ended: Ended) -> dict[str, Json]:
    return {case["id"]: case["items"][0] for case in ended.report["cases"]}


def test_what_an_inline_target_does_is_its_items_error(items: dict[str, Json]) -> None:
    assert {name: items[name]["status"] for name in BAD} == dict.fromkeys(BAD, "error")


def test_other_inline_items_are_not_touched(items: dict[str, Json]) -> None:
    assert {name: items[name]["outcome"] for name in GOOD} == dict.fromkeys(GOOD, "passed")


def test_nothing_of_an_inline_target_is_on_standard_output(ended: Ended) -> None:
    assert ended.code == 1
    for text in ("PRINTED", "WRITTEN", "ECHOED"):
        assert text not in ended.out
        assert text in ended.err
    assert "Traceback" not in ended.err
