"""What a Python target does to its process is its item's error; the run reports and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.support.shell import Ended, Json, evalcore

pytestmark = pytest.mark.multiprocess

# Each is the body of an async function; the ones in `SYNC` of a plain one.
ASYNC: Final = {
    "exit 0": "os._exit(0)",
    "system exit": "sys.exit(0)",
    "interrupt": "raise KeyboardInterrupt",
    "cancelled": "raise asyncio.CancelledError",
    "cancels all": "[task.cancel() for task in asyncio.all_tasks()]; await asyncio.sleep(5)",
    "stops the loop": "asyncio.get_running_loop().stop(); raise ValueError",
    "blocks": "time.sleep(60)",
    "swallows": "await swallow()",
    "hangs": "await asyncio.Event().wait()",
    "turns for ever": "while True: await asyncio.sleep(0)",
    "generator exit": "raise GeneratorExit",
    "closes the loop": "asyncio.get_running_loop().close()",
    "group of errors": "raise BaseExceptionGroup('both', [SystemExit(1), ValueError('x')])",
    "iteration": "raise StopAsyncIteration",
}
SYNC: Final = {
    "segmentation fault": "import ctypes; ctypes.string_at(0)",
    "kills itself": "os.kill(os.getpid(), signal.SIGKILL)",
    "kills its group": "os.killpg(0, signal.SIGKILL)",
    "terminates itself": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "aborts": "os.abort()",
    "becomes another program": "os.execv('/bin/true', ['true'])",
    "recursion": "return recurse(0)",
    "all memory": "kept = []\nwhile True: kept.append(bytearray(1 << 28))",
    "nested answer": "value = []\nfor _ in range(100_000): value = [value]\nreturn value",
    "bytes": "return b'\\xff'",
    "exit of a thread": "raise SystemExit(7)",
    "holds the interpreter": "re.match('(a+)+$', 'a' * 64 + 'b')",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)",
    "native recursion": "sys.setrecursionlimit(1 << 30); recurse(0)",
    "cyclic answer": "value = []; value.append(value); return value",
    "no answer": "return object()",
    "huge answer": "return 'x' * (80 << 20)",
    "wordless": "raise WordlessError",
    "local class": "class Mine(Exception): __reduce__ = None\nraise Mine('said')",
    "closes all": "os.closerange(0, 4096); time.sleep(60)",
    "writes to all": "[write(fd, b'{}' * 4000) for fd in range(3, 64)]; time.sleep(60)",
    "memory": "return str(len(bytearray(1 << 44)))",
    "evidence of nothing": "from evalcore import Evidence; return Evidence('a', details={1: {2}})",
}
# These answer, and must not be seen by what comes after them.
POLITE: Final = {
    "closes its streams": "sys.stdout.close(); sys.stderr.close(); return 'ok'",
    "prints": "print('PRINTED'); os.write(1, b'WRITTEN'); return 'ok'",
    "floods": "subprocess.run('yes FLOODED | head -c 3000000', shell=True); return 'ok'",
    "leaves a thread": "threading.Timer(0.05, os._exit, [0]).start(); return 'ok'",
    "leaves an exit handler": "import atexit; atexit.register(time.sleep, 60); return 'ok'",
    "moves away": "os.chdir('/'); os.environ.clear(); return 'ok'",
    "patches": "json.dumps = time.time = None; return 'ok'",
    "hides the engine": "sys.modules['evalcore'] = None; return 'ok'",
    "replaces its streams": "sys.stdout = sys.stderr = None; return 'ok'",
    "traces": "sys.settrace(lambda *_: None); return 'ok'",
    "leaves a task": "asyncio.run(later()); return 'ok'",
    "turns off the collector": "import gc; gc.disable(); return 'ok'",
    "limits sockets": "import socket; socket.setdefaulttimeout(0.001); return 'ok'",
    "hides files": "os.umask(0o777); return 'ok'",
    "forks": "pid = os.fork()\nif pid == 0: time.sleep(600)\nreturn 'ok'",
}
TARGET: Final = """
import asyncio, ctypes, json, os, re, signal, subprocess, sys, threading, time

class WordlessError(Exception):
    def __str__(self): raise ValueError

def recurse(depth): return recurse(depth + 1)
def write(fd, data):
    try: os.write(fd, data)
    except OSError: pass
async def swallow():
    while True:
        try: await asyncio.sleep(5)
        except asyncio.CancelledError: pass
async def later(): asyncio.get_running_loop().create_task(asyncio.sleep(600))
def good(input): return f"good {input}"
"""


def _function(number: int, kind: str, body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{kind} f{number}(input):\n{lines}"


def _write_suite(folder: Path, bodies: list[tuple[str, str, str]]) -> Path:
    """Write a suite with a target and a test for each body, and a good test after each."""
    code, tests = TARGET, []
    targets = [{"name": "good", "provider": "python", "callable": "mine:good"}]
    for number, (name, kind, body) in enumerate(bodies):
        code += _function(number, kind, body)
        targets.append({"name": name, "provider": "python", "callable": f"mine:f{number}"})
        check = {"type": "contains", "value": "o"}
        tests.append(
            {"id": name, "input": "q", "execution": {"target": name}, "assertions": [check]}
        )
        good = {"type": "equals", "value": f"good {number}"}
        tests.append({"id": f"after {name}", "input": str(number), "assertions": [good]})
    (folder / "mine.py").write_text(code)
    suite = {
        "execution": {"target": "good"},
        "targets": targets,
        "evalcore": {"limits": {"timeout_s": 3}},
        "tests": tests,
    }
    path = folder / "hostile.eval.yaml"
    path.write_text(json.dumps(suite))
    return path


def _all_bodies() -> list[tuple[str, str, str]]:
    rows = [(name, "async def", body) for name, body in ASYNC.items()]
    rows += [(name, "def", body) for name, body in SYNC.items()]
    return rows + [(name, "def", body) for name, body in POLITE.items()]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("hostile")
    path = _write_suite(folder, _all_bodies())
    return evalcore("run", path, "--json", "--concurrency", "8", store=folder / "store", cwd=folder)


@pytest.fixture(scope="module")
def items(ended: Ended) -> dict[str, Json]:
    return {case["id"]: case["items"][0] for case in ended.report["cases"]}


def test_what_a_target_does_is_its_items_error(items: dict[str, Json]) -> None:
    statuses = {name: items[name]["status"] for name in (*ASYNC, *SYNC)}
    assert statuses == dict.fromkeys(statuses, "error")


def test_what_answers_is_an_answer(items: dict[str, Json]) -> None:
    outcomes = {name: items[name]["outcome"] for name in POLITE}
    assert outcomes == dict.fromkeys(POLITE, "passed")


def test_other_items_are_not_touched(items: dict[str, Json]) -> None:
    outcomes = {name: item["outcome"] for name, item in items.items() if "after " in name}
    assert outcomes == dict.fromkeys(outcomes, "passed")


def test_the_run_is_decided(ended: Ended) -> None:
    assert ended.code == 1
    assert ended.report["counts"]["error"] == len(ASYNC) + len(SYNC)


def test_what_targets_print_is_on_standard_error(ended: Ended) -> None:
    for text in ("PRINTED", "WRITTEN"):
        assert text in ended.err
        assert text not in ended.out
