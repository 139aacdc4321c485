from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVarTuple

import pytest

from evalcore.errors import StoreError
from evalcore.trust import machine_faults
from evalcore.trust.commands import CommandResult, run_command


def run(argv: Sequence[str] | str, cwd: Path, **options: Any) -> CommandResult:
    return asyncio.run(run_command(argv, cwd=cwd, **{"timeout_s": 120, **options}))


Ts = TypeVarTuple("Ts")
_LONG_S = 3600.0


class _MovedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be moved on, once the long time has begun."""

    moved_s = 0.0
    has_begun = False

    def time(self) -> float:
        return super().time() + self.moved_s

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self.has_begun = self.has_begun or when > self.time() + _LONG_S / 2
        return super().call_at(when, callback, *args, context=context)


def run_out_of_time(command: str, cwd: Path) -> CommandResult:
    """Run a command whose time is up as soon as it has made the file `ready`."""
    loop = _MovedLoop()

    async def moved() -> CommandResult:
        task = asyncio.create_task(run_command(command, cwd=cwd, timeout_s=_LONG_S))
        while not (loop.has_begun and (cwd / "ready").exists()):
            assert not task.done(), task.result()
            await asyncio.sleep(0.01)
        loop.moved_s += _LONG_S
        return await task

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(moved())


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_exit_code_and_both_outputs_are_returned(tmp_path: Path) -> None:
    result = run("echo out; echo err >&2; exit 3", tmp_path)
    assert result == CommandResult(3, b"out\n", b"err\n", timed_out=False, truncated=False)


def test_array_is_run_without_a_shell(tmp_path: Path) -> None:
    assert run(["echo", "$HOME; exit 1"], tmp_path).stdout == b"$HOME; exit 1\n"


def test_environment_is_minimal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALCORE_TEST_SECRET", "s")
    monkeypatch.setenv("LC_TIME", "C")
    lines = run(["env"], tmp_path, env={"MINE": "m"}).stdout.decode().splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert {"PATH", "MINE", "LC_TIME"} <= names
    known = {"PATH", "HOME", "LANG", "TMPDIR", "MINE"}
    assert names <= {*known, *(name for name in names if "LC_" in name)}


@pytest.mark.parametrize("command", ["cat", "cat /dev/stdin"])
def test_standard_input_is_handed_over(tmp_path: Path, command: str) -> None:
    data = b"x" * 1_000_000
    assert run(command, tmp_path, stdin=data).stdout == data


def test_input_that_is_not_read_is_no_error(tmp_path: Path) -> None:
    result = run("exec <&-; exit 0", tmp_path, stdin=b"x" * 5_000_000)
    assert result.exit_code == 0


def test_flood_of_output_is_cut_and_does_not_block(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(500): os.write(1, b'o' * 10000)\nos.write(1, b'end')"
    result = run(python(code), tmp_path, output_limit=25_000)
    assert (result.exit_code, result.stdout, result.truncated) == (0, b"o" * 25_000, True)


def test_of_a_flood_of_errors_the_end_is_kept(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(500): os.write(2, b'e' * 10000)\nos.write(2, b'the end')"
    result = run(python(code), tmp_path, output_limit=20_000)
    assert (len(result.stderr), result.stderr[-8:], result.truncated) == (20_000, b"ethe end", True)


def test_time_out_kills_grandchildren(tmp_path: Path) -> None:
    result = run_out_of_time("sleep 1000 & echo $!; touch ready; wait", tmp_path)
    assert result.timed_out
    assert result.exit_code != 0
    assert wait_until_gone(int(result.stdout))


def test_time_out_kills_what_ignores_the_request_to_end(tmp_path: Path) -> None:
    command = "trap '' TERM; echo $$; touch ready; while :; do sleep 1; done"
    result = run_out_of_time(command, tmp_path)
    assert (result.timed_out, result.exit_code) == (True, -9)
    assert wait_until_gone(int(result.stdout))


def test_program_may_end_in_order_when_its_time_is_up(tmp_path: Path) -> None:
    command = "trap 'echo bye; exit 7' TERM; echo up; touch ready; while :; do sleep 0.05; done"
    result = run_out_of_time(command, tmp_path)
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 7, b"up\nbye\n")


def test_child_left_with_the_pipes_open_is_killed_and_not_waited_for(tmp_path: Path) -> None:
    result = run("sleep 1000 & echo $!", tmp_path)
    assert (result.exit_code, result.timed_out) == (0, False)
    assert wait_until_gone(int(result.stdout))


def test_child_in_a_session_of_its_own_is_not_waited_for(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print(child.pid)"
    )
    result = run(python(code), tmp_path)
    pid = int(result.stdout)
    assert (result.exit_code, is_running(pid)) == (0, True)
    os.kill(pid, 9)


def test_cancellation_kills_the_program_and_its_children(tmp_path: Path) -> None:
    async def cancelled() -> int:
        command = "sleep 1000 & echo $! > pid.part; mv pid.part pid; wait"
        task = asyncio.create_task(run_command(command, cwd=tmp_path, timeout_s=100))
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return int((tmp_path / "pid").read_text())

    assert wait_until_gone(asyncio.run(cancelled()))


@pytest.mark.parametrize(
    ("argv", "code", "reason"),
    [
        (["no-such-program-here"], 127, "no such program"),
        (["/"], 126, "Permission denied"),
        ([], 126, "empty command"),
        (["echo", "a\0b"], 126, "null byte"),
        (["echo", "x" * 3_000_000], 126, "arguments are too long"),
    ],
    ids=["missing", "not executable", "empty", "NUL", "too long"],
)
def test_program_that_cannot_start_is_a_result(
    tmp_path: Path, argv: list[str], code: int, reason: str
) -> None:
    result = run(argv, tmp_path)
    assert result.exit_code == code
    assert reason in result.stderr.decode()


def test_missing_working_directory_is_named(tmp_path: Path) -> None:
    result = run(["echo"], tmp_path / "gone")
    assert (result.exit_code, b"working directory" in result.stderr) == (126, True)


def test_memory_limit_holds_for_the_program(tmp_path: Path) -> None:
    code = "x = bytearray(1 << 30)"
    assert run(python(code), tmp_path, memory_limit=512 << 20).exit_code == 1
    assert run(python("print(1)"), tmp_path, memory_limit=512 << 20).stdout == b"1\n"


@contextmanager
def no_file_can_be_opened() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_machine_that_lets_no_program_start_is_a_fault_and_no_ending_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_faults, "_RETRIES_S", ())

    async def start() -> CommandResult:
        await run_command(["true"], cwd=tmp_path, timeout_s=30)
        with no_file_can_be_opened():
            return await run_command(["true"], cwd=tmp_path, timeout_s=30)

    with pytest.raises(StoreError, match="cannot start a program: Too many open files"):
        asyncio.run(start())
