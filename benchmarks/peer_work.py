"""The work of benchmarks.peers in each program's own form, and the command that does it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import EVALCORE, ROOT
from benchmarks.throughput import write_cases

PROGRAMS = ROOT / "benchmarks" / "peer_programs"
FIXTURES, MODEL = "fixtures", "model"
# AgentV takes no more workers.
_AGENTV_MOST = 50


class Work(NamedTuple):
    """What is to be done: `cases` of a kind, in a folder, against a model at `url`."""

    kind: str
    cases: int
    folder: Path
    url: str
    concurrency: int

    @property
    def file(self) -> Path:
        """The cases as JSON lines."""
        return self.folder / f"{self.kind}.jsonl"


class Command(NamedTuple):
    """A command to be measured. `result`: the file with its results, None for the last line."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    result: Path | None = None
    note: str = ""


def write_work(work: Work) -> None:
    """Write the cases: given outputs with five checks, or questions with one."""
    if work.kind == FIXTURES:
        write_cases(work.file, work.cases, "same")
        return
    with work.file.open("w", encoding="utf-8") as file:
        for number in range(work.cases):
            case = {
                "id": f"case-{number}",
                "input": f"What became of order {number}?",
                "assertions": [{"type": "contains", "value": "order"}],
            }
            file.write(json.dumps(case) + "\n")


def read_work(work: Work) -> list[dict[str, Any]]:
    """Return the cases."""
    return [json.loads(line) for line in work.file.read_text("utf-8").splitlines()]


def evalcore_command(work: Work, _home: Path) -> Command:
    """Return evalcore's command."""
    store = work.folder / "evalcore-store"
    path = work.file
    flags: tuple[str, ...] = ()
    if work.kind == MODEL:
        # JSON lines take their targets from the YAML file beside them.
        path.with_suffix(".yaml").write_text(
            "targets:\n  - {name: default, provider: openai, model: m, api_key: none, "
            f"base_url: '{work.url}'}}\n"
        )
        flags = ("--concurrency", str(work.concurrency))
    words = (EVALCORE, "run", str(path), "--store", str(store), *flags, "--json")
    return Command(words, {}, work.folder)


def python_command(program: str, work: Work, home: Path) -> Command:
    """Return the command of a program that runs in an environment of its own."""
    python = home / "bin" / "python"
    words = (
        *(str(python), str(PROGRAMS / f"{program}_peer.py"), work.kind, str(work.file)),
        *(work.url, str(work.concurrency)),
    )
    env = {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "DEEPEVAL_NO_INSPECT_PROMPT": "1"}
    return Command(words, {**env, "OPENAI_API_KEY": "none"}, work.folder)


def promptfoo_command(work: Work, home: Path) -> Command:
    """Return promptfoo's command: no cache, no database, no table."""
    tests = []
    for case in read_work(work):
        variables = {"output": case["fixtures"]["output"]} if work.kind == FIXTURES else {}
        variables = variables or {"output": case["input"]}
        tests.append({"vars": variables, "assert": case["assertions"]})
    model = {"id": "openai:chat:m", "config": {"apiBaseUrl": work.url, "apiKey": "none"}}
    config = {
        "prompts": ["{{output}}"],
        "providers": ["echo" if work.kind == FIXTURES else model],
        "tests": tests,
    }
    path = work.folder / f"promptfoo-{work.kind}.json"
    path.write_text(json.dumps(config))
    result = work.folder / f"promptfoo-{work.kind}-results.json"
    words = (
        *("node", str(home / "node_modules" / ".bin" / "promptfoo"), "eval", "-c", str(path)),
        *("-j", str(work.concurrency), "--no-cache", "--no-write", "--no-table"),
        *("--no-progress-bar", "-o", str(result)),
    )
    env = {
        "PROMPTFOO_DISABLE_TELEMETRY": "1",
        "PROMPTFOO_DISABLE_UPDATE": "1",
        "PROMPTFOO_CONFIG_DIR": str(work.folder / "promptfoo-home"),
    }
    return Command(words, env, work.folder, result)


def agentv_command(work: Work, home: Path) -> Command:
    """Return AgentV's command; its `mock` target answers every case with the same text."""
    import yaml

    folder = work.folder / f"agentv-{work.kind}"
    (folder / ".agentv").mkdir(parents=True, exist_ok=True)
    cases = read_work(work)
    if work.kind == FIXTURES:
        target = {"provider": "mock", "response": cases[0]["fixtures"]["output"]}
        note = "one canned answer for all cases (its `mock` target)"
    else:
        target = {"provider": "openai", "base_url": "${{ PEER_URL }}"}
        target |= {"api_key": "${{ PEER_KEY }}", "model": "${{ PEER_MODEL }}"}
        target |= {"api_format": "chat"}
        note = ""
    workers = min(_AGENTV_MOST, work.concurrency)
    if workers < work.concurrency:
        note = f"{note}{'; ' if note else ''}{workers} workers are its most"
    targets = {"targets": [{"name": "peer", **target}]}
    (folder / ".agentv" / "targets.yaml").write_text(yaml.safe_dump(targets))
    tests = [
        {
            "id": case["id"],
            "criteria": "x",
            "input": case["input"],
            "assertions": case["assertions"],
        }
        for case in cases
    ]
    suite = folder / "peer.eval.yaml"
    suite.write_text(yaml.dump({"tests": tests}, Dumper=yaml.CSafeDumper, sort_keys=False))
    output = folder / "out"
    words = (
        *("node", str(home / "node_modules" / "agentv" / "dist" / "cli.js"), "eval", "run"),
        *(str(suite), "--target", "peer", "--workers", str(workers), "--no-cache"),
        *("--output", str(output)),
    )
    env = {"PEER_KEY": "none", "PEER_MODEL": "m", "PEER_URL": work.url, "HOME": str(folder)}
    return Command(words, env, folder, output / "index.jsonl", note)


def passed_cases(name: str, command: Command, stdout: str) -> int:
    """Return how many cases a command says have passed."""
    if name == "evalcore":
        return int(json.loads(stdout.splitlines()[-1])["counts"]["passed"])
    if command.result is None:
        return int(json.loads(stdout.strip().splitlines()[-1])["passed"])
    if name == "promptfoo":
        results = json.loads(command.result.read_bytes())["results"]
        return int(results["stats"]["successes"])
    lines = command.result.read_text("utf-8").splitlines()
    return sum(float(json.loads(line).get("score") or 0) >= 1 for line in lines)


def command_line(command: Command, folder: Path, cache: Path) -> str:
    """Return a command as it is printed: without the folders of this machine."""
    text = " ".join(command.words)
    for path, name in ((folder, "WORK"), (cache, "CACHE"), (ROOT, "."), (Path(sys.prefix), "VENV")):
        text = text.replace(str(path), name)
    return text
