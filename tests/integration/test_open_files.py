"""A process that has few files open may make more calls at once: it may open more."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path

from tests.support.fork_server import PROGRAM
from tests.support.model_server import model_server
from tests.support.shell import environment

FEW = 160


def test_more_calls_than_files_are_no_fault(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    tests = [{"id": f"c{n}", "input": "x", "assertions": [{"type": "contains", "value": "x"}]}
             for n in range(400)]  # fmt: skip
    with model_server() as server:
        target = {"name": "default", "provider": "openai", "model": "m", "api_key": "k"}
        targets = [{**target, "base_url": server.base_url}]
        suite = tmp_path / "many.eval.yaml"
        suite.write_text(json.dumps({"targets": targets, "tests": tests}))
        ended = subprocess.run(
            [PROGRAM, "run", "--json", "--concurrency", "350", suite],
            env=environment(tmp_path / "store"),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard)),
            capture_output=True,
            text=True,
            check=False,
        )

    assert json.loads(ended.stdout)["counts"]["error"] == 0, ended.stderr
