"""How this store was made: `python make.py` with the environment of the version that it is of.

The plans hold the absolute folder of their suite, so the project is copied to a folder whose name
is fixed (`FOLDER`). Run it in a clone of that version (commit fc7f3fa for v0_1); it writes
`store.tar.gz` and `expected.json` beside itself.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = Path("/tmp/evalcore-stored-v0_1")
PROGRAM = str(Path(sys.executable).with_name("evalcore"))
STORE = Path("/tmp/evalcore-store-v0_1")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("EVALCORE_")},
    "EVALCORE_STORE": str(STORE),
    "EVALCORE_PLAN_KEY": "a-key-of-the-stored-fixture-alone",
    "OPENAI_API_KEY": "sk-none",
    "ANTHROPIC_API_KEY": "sk-none",
}
PORT = 18123
VERDICT = '{"score": 0.9, "assertions": [], "reasoning": "good"}'

# Name of the run: folder and arguments of `evalcore run`.
RUNS = {
    "checks": ("checks", "run", "checks.eval.yaml"),
    "blocks": ("blocks", "run", "blocks.eval.yaml"),
    "code-workflow": ("code-workflow", "run", "suite.eval.yaml"),
    "extraction": ("extraction", "run", "suite.eval.yaml"),
    "coding-agent": ("coding-agent", "run", "suite.eval.yaml"),
    "gates": ("gates", "run", "gates.eval.yaml"),
    "route-generator": ("route-generator", "run", "suite.eval.yaml"),
    "review-nodes": ("review-nodes", "run", "suite.eval.yaml"),
    "tables": ("tables", "run", "suite.eval.yaml"),
    "talks": ("talks", "run", "talks.eval.yaml"),
    "talks-again": ("talks", "run", "talks.eval.yaml", "-n", "2", "--case", "booking"),
    "models": ("models", "record", "models.eval.yaml"),
    "scripts": ("scripts", "record", "script.yaml", "suite.yaml"),
    "models-replayed": ("models", "run", "--mode", "replay", "models.eval.yaml"),
    "slow": ("slow", "run", "slow.eval.yaml"),
}


def evalcore(*arguments: str, folder: str = ".") -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], cwd=FOLDER / folder, env=ENVIRONMENT,
                          capture_output=True, text=True, check=False)  # fmt: skip


def newest() -> str:
    return json.loads(evalcore("runs", "list", "--json").stdout)[0]["id"]


def completed(name: str, folder: str, *arguments: str) -> dict[str, Any]:
    ended = evalcore(*arguments, "--json", folder=folder)
    assert ended.returncode in {0, 1, 3, 4}, ended
    report = json.loads(ended.stdout)
    print(name, report["decision"], {gate["name"]: gate["outcome"] for gate in report["gates"]})
    print(ended.stderr, end="")
    time.sleep(1.1)  # ids of runs are ordered by the second
    return {"run": report["run"]["id"], "folder": folder, "code": ended.returncode}


def stopped(number: signal.Signals, *flags: str) -> dict[str, Any]:
    """Start the slow suite, stop it when a few shards are committed."""
    (FOLDER / "slow" / "slow").touch()
    command = [PROGRAM, "run", "slow.eval.yaml", "--json", *flags]
    before = set(STORE.glob("runs/slow/*"))
    child = subprocess.Popen(command, cwd=FOLDER / "slow", env=ENVIRONMENT, start_new_session=True,
                             stdout=subprocess.DEVNULL)  # fmt: skip
    while True:
        folders = sorted(set(STORE.glob("runs/slow/*")) - before)
        if folders and len(list(folders[0].glob("results/*.parquet"))) >= 2:
            break
        time.sleep(0.05)
    os.killpg(child.pid, number)
    code = child.wait()
    (FOLDER / "slow" / "slow").unlink()
    time.sleep(1.1)
    (folder,) = folders
    committed = len(list(folder.glob("results/*.parquet")))
    print("stopped", number.name, flags, code, committed)
    return {"run": folder.name, "folder": "slow", "code": code, "committed": committed}


def main() -> None:
    from tests.model_server import by_rules, model_server

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    for folder in (FOLDER, STORE):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "project", FOLDER, ignore=shutil.ignore_patterns("__pycache__"))
    runs = {}
    with model_server(port=PORT, script=by_rules({'"score"': VERDICT})):
        for name, (folder, *arguments) in RUNS.items():
            runs[name] = completed(name, folder, *arguments)
    print(evalcore("baseline", "set", "route-generator", runs["route-generator"]["run"],
                   "--name", "main"))  # fmt: skip
    runs["with-baseline"] = completed("with-baseline", "route-generator", "run", "suite.eval.yaml",
                                      "--baseline", "main")  # fmt: skip
    runs["regraded"] = completed("regraded", "checks", "regrade", runs["checks"]["run"])
    runs["reused"] = completed("reused", "slow", "run", "slow.eval.yaml", "--reuse")
    print(evalcore("judge", "calibrate", "labels.jsonl", "--judge", "judge", "--threshold",
                   "0.7", folder="blocks"))  # fmt: skip
    for run in runs.values():
        run["report"] = json.loads(evalcore("report", run["run"], "--json").stdout)
    left = {
        "interrupted": stopped(signal.SIGINT),
        "killed": stopped(signal.SIGKILL),
        "workers-interrupted": stopped(signal.SIGINT, "--workers", "2"),
    }
    expected = {
        "runs": runs,
        "stopped": left,
        "list": json.loads(evalcore("runs", "list", "--json").stdout),
        "compared": json.loads(
            evalcore("compare", runs["slow"]["run"], runs["reused"]["run"], "--json").stdout
        ),  # fmt: skip
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", "utf-8")
    with tarfile.open(HERE / "store.tar.gz", "w:gz") as archive:
        archive.add(STORE, "store")


if __name__ == "__main__":
    main()
