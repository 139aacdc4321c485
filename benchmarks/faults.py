"""What runs survive: kills, stores that fail, two coordinators, suspended processes, deadly items.

    uv run python -m benchmarks.faults [--only NAME,…] [--kills N] [--faults N] [--quick] [--dry]

Each trial is a run of the command line, with a store and a counting model server of its own, that
is disturbed and resumed until it is complete:

- kills: SIGKILL, SIGTERM or SIGINT at random moments, to the command alone, to one of its pool
  processes (`--workers 2`), or to the command while its pool processes run.
- faults: the store (SeaweedFS behind a proxy) refuses commits of results, or loses their answers.
- pairs: two `run --resume` of one half-done run at the same moment.
- suspended: the command is stopped for longer than two leases and continued; meanwhile another
  `run --resume` comes, from this host, and from another one (its own name, by `unshare`).
- deadly: an item ends the process that executes it (`_exit`, segmentation fault, memory).
- budgets: `max_tokens` and `max_cost_usd` with 1 and 4 processes and kills; what the server billed
  is compared with the bound.
- prefect: SIGKILL to `run --prefect` (its flow's process), which is resumed, to a Dask or a Ray
  worker or to Prefect's server, after which the same command has to finish.
- machines: SIGKILL to a child of a flow run with `machines`, or to the flow run itself while its
  children run, which is retried then.
- rates: `requests_per_minute` with 1 and 4 processes and a kill; calls in any minute.

No row may be lost or doubled, the report must be the undisturbed one, no committed item may be
called again, and calls are repeated only for shards that were in flight. Exit code 1 if anything
was violated.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import psutil

from benchmarks.fault_runs import (
    ERRORS,
    FAILED,
    MISUSED,
    Attempt,
    ModelServer,
    Trial,
    model_server,
    send,
    write_model_suite,
)
from benchmarks.machine_kills import kill_one, open_pool, stored_report
from benchmarks.measure import Row, machine, table, write_section
from tests.support.prefect_server import NewDatabase
from tests.support.servers import Fault, S3Server, faulty_proxy, s3_server

ITEMS: Final = 120
_SIGNALS: Final = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_LEASE_S: Final = 2.0
_PROCESSES: Final = {
    "inline": (),
    "2 processes": ("--workers", "2"),
    "4 processes": ("--workers", "4"),
    "prefect": ("--prefect",),
    "dask": ("--prefect", "--runner", "dask", "--workers", "2"),
    "ray": ("--prefect", "--runner", "ray", "--workers", "2"),
}
# A task is one item: as many as run at once, and those that are about to.
_SLOTS: Final = {"inline": 1, "2 processes": 2, "4 processes": 4, "prefect": 4, "dask": 8, "ray": 8}
ELSEWHERE: Final = ("unshare", "-u", "sh", "-c", 'hostname elsewhere; exec "$@"', "sh")
"""Runs a command on another host, as far as it can tell; for root only."""


@dataclass
class Outcome:
    """What trials of one kind gave: faults that were injected, calls repeated, what is wrong.

    `most` are the calls repeated after one death, `in_flight` the items that shards in flight had.
    """

    part: str
    way: str
    trials: int = 0
    faults: int = 0
    repeated: int = 0
    most: int = 0
    in_flight: int = 0
    wrong: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, trial: Trial, faults: int) -> None:
        """Add a trial that has ended."""
        self.trials += 1
        self.faults += faults
        self.repeated += trial.repeated
        self.most = max(self.most, trial.most)
        self.in_flight = max(self.in_flight, trial.in_flight)
        self.wrong += [f"{trial.name}: {each}" for each in trial.wrong]

    def merge(self, other: Outcome) -> None:
        """Add what other trials of the kind gave."""
        self.trials += other.trials
        self.faults += other.faults
        self.repeated += other.repeated
        self.most = max(self.most, other.most)
        self.in_flight = max(self.in_flight, other.in_flight)
        self.wrong += other.wrong
        self.notes += other.notes


@dataclass
class Site:
    """Where trials are made."""

    folder: Path
    server: ModelServer
    seed: int
    suite: Path
    whole: bytes = b""
    whole_s: float = 0.0
    s3: S3Server | None = None
    database: NewDatabase | None = None

    def random(self, *names: object) -> Random:
        """Return the random numbers of a trial."""
        return Random(" ".join(map(str, (self.seed, *names))))

    def trial(self, name: str, way: str, suite: Path | None = None, **more: object) -> Trial:
        """Return a trial in a folder of its own."""
        return Trial(
            name, suite or self.suite, self.folder / name, self.server,
            flags=(*_PROCESSES[way], *more.pop("flags", ())), **more,  # type: ignore[misc,arg-type]
        )  # fmt: skip


def checked(site: Site, trial: Trial, way: str, *, bounded: bool = True) -> None:
    """Resume a trial until it is complete, if it is not, and note what is wrong with it."""
    ended = trial.finished()
    if ended is not None:
        trial.check_report(ended, site.whole)
        trial.check_rows(ITEMS)
        trial.check_calls(_SLOTS[way], bounded=bounded)
    trial.check_orphans()


# kills

_MOST_MISSED: Final = 5
KILLED: Final = {
    "the command, inline": ("inline", False),
    "a pool process": ("2 processes", True),
    "the command with pool processes": ("2 processes", False),
}


def kill_runs(site: Site, whom: str, number: int, kills: int) -> Outcome:
    """Kill runs until so many kills have met one; each run is killed up to three times."""
    outcome, random = Outcome("kills", whom), site.random("kill", whom, number)
    (way, child), missed = KILLED[whom], 0
    while outcome.faults < kills:
        name = f"kill-{'-'.join(whom.replace(',', '').split())}-{number}-{outcome.trials}"
        trial, met = site.trial(name, way), 0
        for _ in range(min(3, kills - outcome.faults)):
            attempt = trial.start()
            time.sleep(random.uniform(0.2, site.whole_s))
            if child:
                wait_for(partial(has_children, attempt))
            met += send(attempt, random.choice(_SIGNALS), random, child=child)
            ended = trial.end(attempt)
            if ended.report is not None:
                outcome.notes["completed by the killed command"] += 1
                break
        checked(site, trial, way)
        outcome.add(trial, met)
        missed = 0 if met else missed + 1
        if missed == _MOST_MISSED:
            outcome.wrong.append(f"{whom}: no kill met any of {missed} runs")
            break
    return outcome


PREFECT: Final = {
    "a flow's process": "prefect",
    "a Dask worker": "dask",
    "a Ray worker": "ray",
    "Prefect's server": "prefect",
}


def kill_prefect(site: Site, whom: str, number: int) -> Outcome:
    """Kill the flow's process, a Dask worker or the server of one run through Prefect."""
    outcome, random = Outcome("prefect", whom), site.random("prefect", whom, number)
    folder = site.folder / f"server-{'-'.join(whom.split())}-{number}"
    assert site.database is not None
    with site.database.server(folder) as server:
        more = {"PREFECT_API_URL": server.url, "PREFECT_HOME": str(server.home)}
        way = PREFECT[whom]
        trial = site.trial(f"{folder.name}-trial", way, more=more)
        attempt = trial.start()
        wait_for(partial(has_called, site, attempt, random.randrange(1, ITEMS // 2)))
        met = False
        if whom == "Prefect's server":
            os.killpg(server.process, signal.SIGKILL)
            met = attempt.process.poll() is None
        elif way in _WORKER_WORDS:
            workers = [each for each in attempt.note_children() if is_worker(each, way)]
            if workers:
                random.choice(workers).kill()
                attempt.killed_children, met = 1, True
        else:
            met = send(attempt, signal.SIGKILL, random, child=False)
        ended = trial.end(attempt)
        if whom != "a flow's process" and ended.code != FAILED:
            trial.wrong.append(f"the command did not finish: {ended}")
        checked(site, trial, way)
    outcome.add(trial, int(met))
    return outcome


# In the command line of what executes tasks: a nanny of Dask has started it, an actor names itself.
_WORKER_WORDS: Final = {"dask": "--multiprocessing-fork", "ray": "ray::RayProcess"}


def is_worker(process: psutil.Process, way: str) -> bool:
    """Whether a process executes tasks of a Dask or a Ray cluster."""
    with suppress(psutil.NoSuchProcess):
        return any(word.startswith(_WORKER_WORDS[way]) for word in process.cmdline())
    return False


def prefect_jobs(site: Site, counts: Counts) -> Iterator[Job]:
    """Yield runs through Prefect: a tenth of the kills for each of those that are killed."""
    for number in range(max(1, counts.kills // 10)):
        for whom in PREFECT:
            yield partial(kill_prefect, site, whom, number)


def kill_machines(site: Site, whom: str, kills: int) -> Outcome:
    """Kill a child, or the parent, of so many flow runs that a work pool shares."""
    outcome, parent = Outcome("machines", whom), whom == "the parent of children"
    name = f"machines-{whom.split()[1]}"
    assert site.database is not None
    with (
        site.database.server(site.folder / f"server-{name}") as server,
        open_pool(server, site.suite, site.folder / f"suite-{name}", f"{name}/0") as pool,
    ):
        for number in range(kills):
            trial = site.trial(f"{name}-{number}", "inline", pool.folder / site.suite.name)
            random = site.random(name, number)
            met = kill_one(pool, trial, random, ITEMS, parent=parent)
            trial.check_report(stored_report(trial), site.whole)
            trial.check_rows(ITEMS)
            outcome.add(trial, int(met))
    return outcome


def machine_jobs(site: Site, counts: Counts) -> Iterator[Job]:
    """Yield runs with machines: a tenth of the kills for each of those that are killed."""
    for whom in ("a child on the work pool", "the parent of children"):
        yield partial(kill_machines, site, whom, max(1, counts.kills // 10))


def wait_for(holds: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Wait until a condition holds; return whether it did in time."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return False


def has_children(attempt: Attempt) -> bool:
    """Whether a command has started processes, or has ended."""
    return bool(attempt.note_children()) or attempt.process.poll() is not None


def has_called(site: Site, attempt: Attempt, calls: int) -> bool:
    """Whether a command has made so many calls, or has ended."""
    made = len(site.server.of_attempt(attempt.key))
    return made >= calls or attempt.process.poll() is not None


# store faults


class CommitFaults:
    """Spoils commits of results: some of them at random, or refuses all for some seconds."""

    def __init__(self, random: Random) -> None:
        self.met = 0
        self._random = random
        self._share = random.choice((0.3, 0.6, 1.0, 1.0))
        self._from_s, self._until_s = 0.0, float("inf")
        self._lasts_s = random.uniform(2.0, 30.0) if self._share == 1.0 else float("inf")

    def __call__(self, method: str, path: str) -> Fault | None:
        """Return what happens to a request."""
        if method not in {"PUT", "POST"} or "/results/" not in path:
            return None
        now = time.monotonic()
        if not self._from_s:
            self._from_s, self._until_s = now, now + self._lasts_s
        if now > self._until_s or (self.met and self._random.random() >= self._share):
            return None
        self.met += 1
        error = b"<Error><Code>InternalError</Code></Error>"
        refusals = (
            Fault(500, body=error),
            Fault(503, body=b"<Error><Code>SlowDown</Code></Error>"),
        )
        others = (
            Fault(loses_answer=True),
            Fault(500, loses_answer=True, body=error),
            Fault(delay_s=1.0),
        )
        return self._random.choice(refusals if self._share == 1.0 else refusals + others)


def spoil_store(site: Site, way: str, number: int) -> Outcome:
    """Make one run on a store that fails."""
    outcome, random = Outcome("store faults", way), site.random("fault", number)
    assert site.s3 is not None
    with faulty_proxy(site.s3.url) as proxy:
        proxy.rule = faults = CommitFaults(random)
        more = {**site.s3.environment, "AWS_ENDPOINT_URL": proxy.url}
        trial = site.trial(f"fault-{number}", way, more=more, s3=site.s3)
        # Shards are executed while the commits of earlier ones are tried again.
        checked(site, trial, way, bounded=False)
    outcome.add(trial, faults.met)
    outcome.notes["resumed"] += len(trial.attempts) - 1
    return outcome


# two coordinators, and suspended ones


def half_done(site: Site, trial: Trial) -> Attempt:
    """Start a run; return once some of its rows are committed, or it has ended."""
    attempt = trial.start()
    wait_for(lambda: bool(trial.rows()) or attempt.process.poll() is not None)
    return attempt


def is_refusal(err: str, process: int) -> bool:
    """Whether a message names this host, the process and a time."""
    return (
        platform.node() in err
        and re.search(rf"\b{process}\b", err) is not None
        and re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d", err) is not None
    )


def resume_twice(site: Site, way: str, number: int) -> Outcome:
    """Resume a half-done run by two commands at the same moment."""
    outcome, trial = Outcome("two coordinators", way), site.trial(f"pair-{number}", way)
    first = half_done(site, trial)
    send(first, signal.SIGKILL, site.random("pair", number), child=False)
    trial.end(first)
    committed = frozenset(row.case for row in trial.rows())
    both = [trial.start(committed=committed), trial.start(committed=committed)]
    ended = [trial.end(attempt) for attempt in both]
    called = [bool(site.server.of_attempt(attempt.key)) for attempt in both]
    if called.count(True) > 1:
        trial.wrong.append("both commands executed items")
    winner = 1 if called[1] or (not called[0] and ended[1].code == FAILED) else 0
    if ended[winner].code != FAILED or ended[winner].report is None:
        trial.wrong.append(f"neither completed the run: {ended[winner]}")
    other = ended[1 - winner]
    refused = other.code == MISUSED and is_refusal(other.err, both[winner].process.pid)
    if not refused and not (other.code == FAILED and other.report == site.whole):
        trial.wrong.append(f"the other was not refused with host, process and time: {other}")
    checked(site, trial, way)
    outcome.notes["refused" if refused else "not refused"] += 1
    outcome.add(trial, 1)
    return outcome


def suspend(site: Site, way: str, elsewhere: bool, number: int) -> Outcome:
    """Suspend a run for more than two leases, resume it meanwhile, and continue it."""
    where = "resumed elsewhere" if elsewhere else "resumed here"
    outcome = Outcome("suspended", f"{where}, {way}")
    trial = site.trial(f"suspended-{'elsewhere' if elsewhere else 'here'}-{number}", way)
    random = site.random("suspended", elsewhere, number)
    first = half_done(site, trial)
    whole_tree = random.random() < 0.5 or way == "inline"  # a laptop that sleeps stops all
    stopped = [first.process.pid] + [c.pid for c in first.note_children() if whole_tree]
    for process in stopped:
        send_to(process, signal.SIGSTOP)
    if first.process.poll() is not None:
        outcome.notes["ended too early"] += 1
    suspended_at = time.monotonic()
    second = trial.start(prefix=ELSEWHERE if elsewhere else ())
    if elsewhere:
        # It waits for two leases, takes the run over, and is in the middle of it.
        wait_for(partial(has_called, site, second, 1))
        time.sleep(random.uniform(0.0, 1.0))
    else:
        refused = trial.end(second)
        if not (refused.code == MISUSED and is_refusal(refused.err, first.process.pid)):
            trial.wrong.append(f"not refused while the holder lives: {refused}")
    time.sleep(max(0.0, 2 * _LEASE_S + 1.5 - (time.monotonic() - suspended_at)))
    for process in stopped:
        send_to(process, signal.SIGCONT)
    continued = trial.end(first)
    if elsewhere:
        taken = trial.end(second)
        if taken.report != site.whole:
            trial.wrong.append(f"the command that took over did not complete the run: {taken}")
        if continued.code in {0, FAILED} and continued.report != site.whole:
            trial.wrong.append(f"the suspended command ended as if all were well: {continued}")
    elif continued.code not in {FAILED, ERRORS}:
        trial.wrong.append(f"the suspended command: {continued}")
    checked(site, trial, way)
    outcome.add(trial, 1)
    return outcome


def send_to(process: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


# deadly items

DEADLY: Final = {"_exit": "exit", "segmentation fault": "segfault", "out of memory": "memory"}
_DEADLY_ITEMS: Final = 24
_DEADLY_MODULE: Final = """\
import ctypes, os, resource, signal, time


def answer(text):
    time.sleep(0.02)
    if text == "exit":
        os._exit(77)
    if text == "segfault":
        ctypes.string_at(0)
    if text == "memory":
        used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, resource.RLIM_INFINITY))
        hoard = []
        try:
            while True:
                hoard.append(bytearray(2**24))
        except MemoryError:  # what the kernel does then, to this process only
            os.kill(os.getpid(), signal.SIGKILL)
    return "hello"
"""


def write_deadly_suite(folder: Path, kind: str) -> Path:
    """Write a suite of Python calls of which one ends its process; return its path."""
    folder.mkdir()
    suite = {
        "name": "deadly",
        "targets": [{"name": "code", "provider": "python", "callable": "deadly:answer"}],
        "execution": {"target": "code"},
        "evalcore": {"limits": {"concurrency": 2}},
        "assertions": [{"type": "contains", "value": "hello"}],
        "tests": "cases.jsonl",
    }
    (folder / "deadly.py").write_text(_DEADLY_MODULE)
    (folder / "deadly.eval.yaml").write_text(json.dumps(suite))
    inputs = [kind if number == 7 else "live" for number in range(_DEADLY_ITEMS)]
    lines = [json.dumps({"id": f"c{number}", "input": text}) for number, text in enumerate(inputs)]
    (folder / "cases.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "deadly.eval.yaml"


def deadly_item(site: Site, kind: str, way: str) -> Outcome:
    """Run a suite with an item that ends its process, until it is complete."""
    outcome, name = (
        Outcome("deadly item", f"{kind}, {way}"),
        f"deadly-{DEADLY[kind]}-{way[0]}",
    )
    suite = write_deadly_suite(site.folder / f"suite-{name}", DEADLY[kind])
    trial = site.trial(name, way, suite, flags=("--isolation", "inline"))
    ended = trial.finished()
    if ended is not None:
        items = {case["id"]: case["items"][0] for case in ended.document["cases"]}
        states = {case: item["status"] for case, item in items.items()}
        if states.pop("c7", None) != "error" or not items["c7"]["error"]["message"]:
            trial.wrong.append(f"the deadly item is {items.get('c7')}")
        if len(states) != _DEADLY_ITEMS - 1 or set(states.values()) != {"completed"}:
            trial.wrong.append(f"the others are {states}")
        trial.check_rows(_DEADLY_ITEMS)
        outcome.notes[f"{len(trial.attempts)} commands"] += 1
    trial.check_orphans()
    outcome.add(trial, 1)
    return outcome


# budgets and rates

_BUDGET_TOKENS: Final = 500
_USD_PER_TOKEN: Final = 0.001
BUDGETS: Final = ("max_tokens", "max_cost_usd")
_BUDGET_ITEMS: Final = 80


def spend(site: Site, budget: str, way: str, number: int, *, enough: bool = False) -> Outcome:
    """Run under a budget, and compare it with what the server billed.

    The budget is for half of the items, and the run is killed twice; or it is `enough` for all of
    them, none of which may be skipped then.
    """
    what = f"enough {budget}" if enough else budget
    outcome, random = Outcome("budgets", f"{what}, {way}"), site.random("budget", what, way, number)
    name = f"budget-{'-'.join(what.split())}-{way[0]}-{number}"
    allowed = _BUDGET_TOKENS * 3 if enough else _BUDGET_TOKENS
    per_token = _USD_PER_TOKEN if budget == "max_cost_usd" else 1
    limits = {budget: allowed * per_token, "concurrency": 4}
    suite = write_model_suite(
        site.folder / f"suite-{name}", site.server, _BUDGET_ITEMS, {"limits": limits}
    )
    per_million = _USD_PER_TOKEN * 1e6
    prices = f'[prices."counted"]\ninput = {per_million}\noutput = {per_million}\n'
    (suite.parent / "evalcore.toml").write_text(prices)
    trial, kills = site.trial(name, way, suite), 0
    for _ in range(0 if enough else 2):
        attempt = trial.start()
        wait_for(partial(has_called, site, attempt, random.randrange(1, 13)))
        child = way != "inline" and random.random() < 0.5
        kills += send(attempt, random.choice(_SIGNALS), random, child=child)
        if trial.end(attempt).report is not None:
            break
    ended = trial.finished()
    if ended is not None:
        trial.check_rows(_BUDGET_ITEMS)
        if enough and ended.document["counts"]["skipped"]:
            trial.wrong.append(f"skipped items that could be paid for: {ended.document['counts']}")
    trial.check_orphans()
    billed = sum(call.tokens for call in site.server.of_trial(name))
    if billed > allowed:
        trial.wrong.append(f"{billed} tokens were billed, {allowed} allowed")
    outcome.add(trial, kills)
    outcome.notes[f"billed {round(billed / allowed, 1):.0%}"] += 1
    return outcome


_PER_MINUTE: Final = 40
# Less than a minute by what two clocks, a process away from each other, may differ.
_WINDOW_S: Final = 58.0


def hurry(site: Site, way: str, kill: bool, observed_s: float) -> Outcome:
    """Run more calls than a rate allows for a while; count those of any minute."""
    outcome = Outcome("rates", f"{way}, {'killed' if kill else 'undisturbed'}")
    name = f"rate-{way[0]}-{'killed' if kill else 'whole'}"
    limits = {"concurrency": 8, "providers": {"model": {"requests_per_minute": _PER_MINUTE}}}
    suite = write_model_suite(site.folder / f"suite-{name}", site.server, 400, {"limits": limits})
    trial, random, deaths = site.trial(name, way, suite), site.random(name), 0
    attempt, until = trial.start(), time.monotonic() + observed_s
    if kill:
        wait_for(lambda: len(site.server.of_trial(name)) > 4)
        child = way != "inline"
        deaths += send(attempt, signal.SIGKILL, random, child=child)
        if not child:
            trial.end(attempt)
            attempt = trial.start()
    time.sleep(max(0.0, until - time.monotonic()))
    send(attempt, signal.SIGINT, random, child=False)
    trial.end(attempt)
    trial.check_orphans()
    times = [call.at_s for call in site.server.of_trial(name)]
    most = max((sum(0 <= each - first < _WINDOW_S for each in times) for first in times), default=0)
    block = -(-_PER_MINUTE // (2 * _SLOTS[way]))
    if not times or most > _PER_MINUTE + deaths * block:
        trial.wrong.append(f"{most} calls in a minute, {_PER_MINUTE} allowed, {deaths} deaths")
    outcome.add(trial, deaths)
    outcome.notes[f"{most} of {_PER_MINUTE} in a minute"] += 1
    return outcome


# all of it


class Counts(NamedTuple):
    """How much of each part is done."""

    kills: int
    faults: int
    pairs: int
    suspended: int
    budgets: int
    observed_s: float
    quick: bool


Job = Callable[[], Outcome]


BOTH: Final = ("inline", "2 processes")


def kill_jobs(site: Site, counts: Counts) -> Iterator[Job]:
    """Yield trials with kills, a few kills each."""
    for index, whom in enumerate(KILLED):
        left, number = len(range(index, counts.kills, len(KILLED))), 0
        while left > 0:
            yield partial(kill_runs, site, whom, number, min(4, left))
            left, number = left - 4, number + 1


def fault_jobs(site: Site, counts: Counts) -> Iterator[Job]:
    """Yield runs on stores that fail."""
    for number in range(counts.faults):
        yield partial(spoil_store, site, BOTH[number % 2], number)


def pair_jobs(site: Site, counts: Counts) -> Iterator[Job]:
    """Yield runs that two commands resume."""
    for number in range(counts.pairs):
        yield partial(resume_twice, site, BOTH[number % 2], number)


def suspended_jobs(site: Site, counts: Counts) -> Iterator[Job]:
    """Yield runs that are suspended."""
    for number in range(counts.suspended):
        for elsewhere in (False, True) if can_be_elsewhere() else (False,):
            yield partial(suspend, site, BOTH[number % 2], elsewhere, number)


def deadly_jobs(site: Site, counts: Counts) -> Iterator[Job]:
    """Yield runs with a deadly item."""
    for index, kind in enumerate(DEADLY):
        for way in BOTH[index % 2 :][:1] if counts.quick else BOTH:
            yield partial(deadly_item, site, kind, way)


def budget_jobs(site: Site, counts: Counts) -> Iterator[Job]:
    """Yield runs under a budget."""
    ways = [(budget, way) for budget in BUDGETS for way in ("inline", "4 processes")]
    for budget, way in ways[1:3] if counts.quick else ways:
        for number in range(counts.budgets):
            yield partial(spend, site, budget, way, number)
        if not counts.quick:
            yield partial(spend, site, budget, way, 0, enough=True)


def rate_jobs(site: Site, counts: Counts) -> Iterator[Job]:
    """Yield runs under a rate."""
    for way in ("4 processes",) if counts.quick else ("inline", "4 processes"):
        for kill in (True,) if counts.quick else (False, True):
            yield partial(hurry, site, way, kill, counts.observed_s)


PARTS: Final[Mapping[str, Callable[[Site, Counts], Iterator[Job]]]] = {
    "rates": rate_jobs,
    "kills": kill_jobs,
    "faults": fault_jobs,
    "pairs": pair_jobs,
    "suspended": suspended_jobs,
    "deadly": deadly_jobs,
    "budgets": budget_jobs,
    "prefect": prefect_jobs,
    "machines": machine_jobs,
}


def can_be_elsewhere() -> bool:
    """Whether a command can be made to believe that it is on another host."""
    if shutil.which("unshare") is None:
        return False
    return not subprocess.run([*ELSEWHERE, "true"], capture_output=True, check=False).returncode


def undisturbed(site: Site) -> None:
    """Run without any fault, for what trials are compared with."""
    began, trial = time.monotonic(), site.trial("undisturbed", "inline")
    ended = trial.end(trial.start())
    if ended.code != FAILED or ended.report is None or trial.wrong:
        raise SystemExit(f"the undisturbed run: {ended}")
    site.whole, site.whole_s = ended.report, time.monotonic() - began


def executed(site: Site, parts: Sequence[str], counts: Counts, workers: int) -> list[Outcome]:
    """Make all trials, several at once; return what they gave, by part and way."""
    merged: dict[tuple[str, str], Outcome] = {}
    with ThreadPoolExecutor(workers) as pool, ThreadPoolExecutor(8) as waiting:
        # Rates take a minute and no processor.
        futures = [
            (waiting if part == "rates" else pool).submit(job)
            for part in parts
            for job in PARTS[part](site, counts)
        ]
        for future in futures:
            outcome = future.result()
            for wrong in outcome.wrong:
                print(f"{outcome.part}, {outcome.way}: {wrong}", file=sys.stderr, flush=True)
            known = merged.setdefault(
                (outcome.part, outcome.way), Outcome(outcome.part, outcome.way)
            )
            known.merge(outcome)
    return list(merged.values())


def rows_of(outcomes: Sequence[Outcome]) -> list[Row]:
    """Return the lines of the table."""
    return [
        Row(
            (
                each.part,
                each.way,
                f"{each.trials}",
                f"{each.faults}",
                f"{each.repeated}",
                f"{each.most} of {each.in_flight}" if each.in_flight else "",
                "; ".join(f"{count} × {note}" for note, count in sorted(each.notes.items())),
            ),
            f"{len(each.wrong)} violations" if each.wrong else "",
        )
        for each in outcomes
    ]


def main() -> int:
    """Make the trials, print the table, write it into RESULTS.md; 1 if anything was violated."""
    parser = argparse.ArgumentParser(description="Kill runs and spoil their stores.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--faults", type=int, default=100, help="runs on a failing store")
    parser.add_argument("--pairs", type=int, default=20, help="two coordinators at once")
    parser.add_argument("--only", default=",".join(PARTS), help="of: " + ", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a twentieth of it, in a minute")
    parser.add_argument("--jobs", type=int, default=3, help="trials at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dry", action="store_true", help="leave RESULTS.md as it is")
    options = parser.parse_args()
    parts = [part.strip() for part in options.only.split(",")]
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    counts = Counts(options.kills, options.faults, options.pairs, 5, 5, 100.0, quick=False)
    if options.quick:
        kills, faults, pairs, *_ = (max(1, round(count / 20)) for count in counts[:3])
        counts = Counts(kills, faults, pairs, 1, 1, observed_s=12.0, quick=True)
    with TemporaryDirectory(prefix="evalcore-faults-") as name, ExitStack() as stack:
        folder = Path(name).resolve()
        server = stack.enter_context(model_server())
        limits = {"limits": {"concurrency": 4}}
        suite = write_model_suite(folder / "suite", server, ITEMS, limits)
        site = Site(folder, server, options.seed, suite)
        if "faults" in parts:
            site.s3 = stack.enter_context(s3_server())
        if {"prefect", "machines"} & set(parts):
            (folder / "database").mkdir()
            site.database = NewDatabase(folder / "database")
        undisturbed(site)
        rows = rows_of(executed(site, parts, counts, options.jobs))
    if "suspended" in parts and not can_be_elsewhere():
        print("no takeover from another host: `unshare -u` needs root", file=sys.stderr)
    header = ("what", "way", "trials", "faults", "calls repeated", "most after a death", "seen")
    text = table(header, rows)
    print(text)
    about = (
        f"## Faults\n\n`uv run python -m benchmarks.faults --seed {options.seed}`, {ITEMS} "
        f"items of 40 to 80 ms, four at once in each process, {machine()}. *Most after a death*: "
        "the calls repeated after one death, of the items that shards in flight could have.\n\n"
    )
    if not options.dry and not options.quick and set(parts) == set(PARTS):
        write_section("faults", about + text)
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
