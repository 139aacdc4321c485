"""Runs that the fault benchmark disturbs: a model server that counts, commands, what they stored.

Nothing here knows how the engine executes: commands go through the shell, calls are counted by the
server that they reach, and rows are read from the Parquet objects of the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zlib import crc32

import duckdb
import psutil
from aiohttp import web

from benchmarks.measure import EVALCORE
from tests.support.reports import stable_report
from tests.support.servers import BUCKET, S3Server
from tests.support.shell import environment

HUNG_S = 180.0
_ORPHANS_END_S = 20.0
_MOST_RESUMES = 10
FAILED, MISUSED, ERRORS = 1, 2, 4
_RUN_ID = re.compile(r"runs/[^/]+/(\d{8}T\d{6}Z-[0-9a-f]{6})/")
_ITEM = re.compile(r"item (\S+)")
MAX_ANSWER_TOKENS = 16


class Call(NamedTuple):
    """A call that the server got: when, by which attempt, of which item, and what it billed."""

    at_s: float
    attempt: str
    item: str
    tokens: int


class ModelServer:
    """Answers OpenAI's chat completions after 40 to 80 ms and counts the calls by their item.

    The bearer token of a call says which attempt it is of. An answer is billed when its call comes,
    whether or not the caller lives until the answer.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.url = ""

    def of_attempt(self, attempt: str) -> list[Call]:
        """Return the calls of an attempt."""
        return [call for call in tuple(self.calls) if call.attempt == attempt]

    def of_trial(self, trial: str) -> list[Call]:
        """Return the calls of all attempts of a trial."""
        return [call for call in tuple(self.calls) if call.attempt.startswith(trial + "/")]

    async def answer(self, request: web.Request) -> web.Response:
        """Count a call and answer it."""
        question = await request.json()
        asked = question["messages"][-1]["content"]
        found = _ITEM.search(asked)
        item = found[1] if found else "?"
        mixed = crc32(item.encode())
        billed = {"prompt_tokens": len(asked.split()), "completion_tokens": 5 + mixed % 10}
        tokens = sum(billed.values())
        attempt = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.calls.append(Call(time.monotonic(), attempt, item, tokens))
        await asyncio.sleep(0.04 + mixed % 40 / 1000)
        message = {"role": "assistant", "content": f"hello {item}"}
        return web.json_response(
            {
                "id": "counted",
                "object": "chat.completion",
                "created": 0,
                "model": question["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": billed | {"total_tokens": tokens},
            }
        )


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """Run a counting model server in a thread of this process."""
    counted, loop = ModelServer(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    application = web.Application()
    application.router.add_post("/v1/chat/completions", counted.answer)
    runner = web.AppRunner(application, access_log=None)

    async def listen() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()

    asyncio.run_coroutine_threadsafe(listen(), loop).result()
    counted.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield counted
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


class Ended(NamedTuple):
    """How a command ended; no `code` says that it hung and was killed."""

    code: int | None
    out: str
    err: str

    @property
    def report(self) -> bytes | None:
        """The report that it printed, without its run's id and times; None if it printed none."""
        lines = self.out.splitlines()
        return stable_report(lines[-1]) if lines and lines[-1].startswith("{") else None

    @property
    def document(self) -> dict[str, Any]:
        """The report that it printed."""
        document: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return document

    def __str__(self) -> str:
        return f"exit code {self.code}: {self.err.strip()[-400:]}"


class Row(NamedTuple):
    """A committed row: its item's number and case, and the object that holds it."""

    item: int
    case: str
    part: str


@dataclass
class Attempt:
    """One command of a trial; `committed` are the cases that had a row before it began."""

    key: str
    process: subprocess.Popen[str]
    out: Path
    err: Path
    committed: frozenset[str]
    began_s: float
    killed_children: int = 0
    children: list[psutil.Process] = field(default_factory=list)

    def note_children(self) -> list[psutil.Process]:
        """Return the processes that the command has started and that run; remember them."""
        with suppress(psutil.NoSuchProcess):
            command = psutil.Process(self.process.pid)
            running: list[psutil.Process] = command.children(recursive=True)
            self.children += [child for child in running if child not in self.children]
            return running
        return []

    def ended(self) -> Ended:
        """Wait for the end of the command, at most `HUNG_S`."""
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = self.process.wait(HUNG_S)
        if code is None:
            self.note_children()
            self.process.kill()
            self.process.wait()
        return Ended(code, self.out.read_text(), self.err.read_text())


class Trial:
    """One run in a store of its own, its attempts, and what is wrong with it."""

    def __init__(
        self,
        name: str,
        suite: Path,
        folder: Path,
        server: ModelServer,
        *,
        flags: Sequence[str] = (),
        more: Mapping[str, str] | None = None,
        s3: S3Server | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        self.name, self.suite, self.folder, self.server = name, suite, folder, server
        self.flags, self.more, self.s3 = list(flags), dict(more or {}), s3
        self.store = f"s3://{BUCKET}/{name}" if s3 else str(folder / "store")
        self.attempts: list[Attempt] = []
        self.wrong: list[str] = []
        self.repeated = self.most = self.in_flight = 0
        self.unplanned: set[str] = set()

    # commands

    def start(
        self, *, prefix: Sequence[str] = (), committed: frozenset[str] | None = None
    ) -> Attempt:
        """Begin the run, or resume what is left of it."""
        number = len(self.attempts)
        run_id = self.run_id()
        what = [str(self.suite)] if run_id is None else ["--resume", run_id]
        key = f"{self.name}/{number}"
        more = {"EVALCORE_LEASE_S": "2", "OPENAI_API_KEY": key, **self.more}
        if committed is None:
            committed = frozenset(row.case for row in self.rows())
        out, err = self.folder / f"out-{number}.txt", self.folder / f"err-{number}.txt"
        with out.open("w") as out_file, err.open("w") as err_file:
            process = subprocess.Popen(
                [*prefix, EVALCORE, "run", *what, "--json", *self.flags],
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
                text=True,
                cwd=self.suite.parent,
                env=environment(self.store, **more),
                start_new_session=True,
            )
        attempt = Attempt(key, process, out, err, committed, time.monotonic())
        self.attempts.append(attempt)
        return attempt

    def end(self, attempt: Attempt) -> Ended:
        """Wait for the end of an attempt; note what no command may do."""
        ended = attempt.ended()
        if ended.code is None:
            self.wrong.append(f"a command hung for {HUNG_S:.0f} s: {ended.err[-400:]}")
        # Python itself prints one if it is interrupted before it runs any of evalcore.
        if re.search(r'^  File ".*/evalcore/', ended.err, re.MULTILINE):
            self.wrong.append(f"a command ended with a traceback: {ended.err[-800:]}")
        if "was stopped before it was planned" in ended.err and (run := self.run_id()):
            self.unplanned.add(run)
        return ended

    def finished(self) -> Ended | None:
        """Resume until the run has a report; None, and noted, if it never has one."""
        ended = Ended(None, "", "no attempt")
        for _ in range(_MOST_RESUMES):
            ended = self.end(self.start())
            if ended.report is not None and ended.code in {0, FAILED}:
                return ended
            if ended.report is not None and self.is_complete(ended):
                return ended
            if ended.code is None:
                return None
            if ended.code != ERRORS and not (ended.code < 0 or ended.code > 4):
                break
        self.wrong.append(f"the run never completed: {ended}")
        return None

    def is_complete(self, ended: Ended) -> bool:
        """Whether every planned item of the report has a row."""
        counts = ended.document["counts"]
        return bool(counts["planned"]) and counts["planned"] == len(self.rows())

    # what is stored

    def _keys(self) -> list[str]:
        if self.s3 is None:
            root = Path(self.store)
            return [str(path.relative_to(root)) for path in root.glob("runs/*/*/**/*.*")]
        client = s3_client(self.s3)
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix=f"{self.name}/runs/"
        )
        keys: list[str] = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return [key.removeprefix(f"{self.name}/") for key in keys]

    def run_id(self) -> str | None:
        """Return the run that can be resumed, None if there is none."""
        runs = {found[1] for key in self._keys() if (found := _RUN_ID.match(key))}
        return max(runs - self.unplanned, default=None)

    def rows(self) -> list[Row]:
        """Return all rows that are committed."""
        parts = [key for key in self._keys() if re.search(r"/results/[^/]+\.parquet$", key)]
        if not parts:
            return []
        with TemporaryDirectory() as name, duckdb.connect() as connection:
            if self.s3 is None:
                paths = [str(Path(self.store, part)) for part in parts]
            else:
                client, paths = s3_client(self.s3), []
                for number, part in enumerate(parts):
                    paths.append(f"{name}/{number}.parquet")
                    client.download_file(BUCKET, f"{self.name}/{part}", paths[-1])
            found = connection.execute(
                "SELECT item, case_id, filename FROM read_parquet(?, filename=true)", [paths]
            ).fetchall()
        return [Row(*each) for each in found]

    # what must hold

    def check_rows(self, items: int) -> None:
        """Note rows that are lost or doubled."""
        numbers = Counter(row.item for row in self.rows())
        lost = sorted(set(range(items)) - set(numbers))
        doubled = sorted(item for item, count in numbers.items() if count > 1)
        if lost or doubled or len(numbers) != items:
            self.wrong.append(f"rows lost: {lost}, doubled: {doubled}, of {len(numbers)} items")

    def check_report(self, ended: Ended, whole: bytes) -> None:
        """Note a report that is not the undisturbed one."""
        if ended.report != whole:
            self.wrong.append(f"another report than the undisturbed run's; {ended}")

    def check_calls(self, slots: int, *, bounded: bool) -> None:
        """Note calls of committed items, and second calls of a process that was not killed.

        `bounded`: also more repeated ones than shards in flight had. A process has one shard that
        drains and the next one.
        """
        sizes = Counter(row.part for row in self.rows())
        self.in_flight = in_flight = 2 * slots * max(sizes.values(), default=0)
        seen: set[str] = set()
        for attempt in self.attempts:
            calls = Counter(call.item for call in self.server.of_attempt(attempt.key))
            if committed := attempt.committed & set(calls):
                self.wrong.append(f"{attempt.key} called committed items: {sorted(committed)}")
            repeated = sum(calls.values()) - len(calls) + len(seen & set(calls))
            deaths = attempt.killed_children + (attempt is not self.attempts[0])
            twice = sorted(item for item, count in calls.items() if count > 1)
            if twice and not attempt.killed_children:
                self.wrong.append(f"{attempt.key} called items twice: {twice}")
            elif bounded and repeated > deaths * in_flight:
                self.wrong.append(f"{attempt.key} repeated {repeated} calls, {in_flight} in flight")
            self.repeated += repeated
            self.most = max(self.most, repeated // max(1, deaths))
            seen |= set(calls)

    def check_orphans(self) -> None:
        """Note processes of killed commands that do not end; end them."""
        every = [child for attempt in self.attempts for child in attempt.children]
        _, alive = psutil.wait_procs(every, _ORPHANS_END_S)
        if alive:
            self.wrong.append(f"{len(alive)} processes outlive the commands that started them")
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def s3_client(server: S3Server) -> Any:
    """Return a client of the server itself, beside any proxy."""
    import boto3

    variables = server.environment
    return boto3.session.Session().client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
    )


def send(attempt: Attempt, number: signal.Signals, random: Random, *, child: bool) -> bool:
    """Send a signal to the command, or to one of its processes; return whether it got it."""
    children = attempt.note_children()
    if not child:
        if attempt.process.poll() is not None:
            return False
        attempt.process.send_signal(number)
        return True
    if not children:
        return False
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        os.kill(random.choice(children).pid, number)
        attempt.killed_children += 1
        return True
    return False


def write_model_suite(
    folder: Path, server: ModelServer, items: int, evalcore: Mapping[str, Any], **target: Any
) -> Path:
    """Write a suite of `items` calls; a seventh of its cases fails. Return its path."""
    folder.mkdir(parents=True)
    model = {"name": "model", "provider": "openai", "model": "counted", "base_url": server.url}
    suite = {
        "name": "faults",
        "targets": [model | {"max_tokens": MAX_ANSWER_TOKENS} | target],
        "execution": {"target": "model"},
        "evalcore": dict(evalcore),
        "assertions": [{"type": "contains", "value": "hello"}],
        "tests": "cases.jsonl",
    }
    path = folder / "faults.eval.yaml"
    path.write_text(json.dumps(suite))
    lines = (
        {
            "id": f"c{number}",
            "input": f"item c{number}",
            "assertions": [{"type": "contains", "value": "hello" if number % 7 else "goodbye"}],
        }
        for number in range(items)
    )
    (folder / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
