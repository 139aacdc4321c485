"""Commands do not pay for what they do not need: what they import, as `-X importtime` tells."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shell import ROOT, environment, evalcore

MAIN = "from evalcore.cli.main import main; main()"
ONE_CASE = """\
tests:
  - id: greeting
    input: Say hello.
    fixtures: {output: Hello!}
    assertions: [{type: contains, value: Hello}]
"""
NEVER = {"prefect", "boto3", "botocore", "pyarrow", "duckdb"}
NOT_FOR_PLAIN_CHECKS = {"jsonschema", "sacrebleu", "rouge_score", "rapidfuzz", "jsonpath"}
NOT_FOR_HELP = {"_duckdb", "pydantic", "yaml", "asyncio", "jiter"}
NOT_FOR_OPTIONS = {"analytics", "execution", "formats.text", "pipeline", "report", "sql"}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "one.eval.yaml"
    path.write_text(ONE_CASE, "utf-8")
    return path


def imported_modules(*arguments: str, store: Path) -> set[str]:
    """Return the full names of the modules that a command imports."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(store),
        timeout=120,
        check=True,
    )
    names = set(re.findall(r"^import time:.*\| +([\w.]+)$", ended.stderr, flags=re.MULTILINE))
    assert "evalcore.cli.main" in names
    return names


def imported(*arguments: str, store: Path) -> set[str]:
    """Return the top-level modules that a command imports."""
    return {name.partition(".")[0] for name in imported_modules(*arguments, store=store)}


def test_a_run_of_given_outputs_imports_no_orchestrator_and_no_client(
    suite: Path, tmp_path: Path
) -> None:
    modules = imported_modules("run", str(suite), store=tmp_path / "store")
    assert "rich.console" not in modules  # `rich.cells` measures texts
    assert {name.partition(".")[0] for name in modules} & (NEVER | NOT_FOR_PLAIN_CHECKS) == set()


def test_a_report_from_a_folder_imports_no_orchestrator_and_no_client(
    suite: Path, tmp_path: Path
) -> None:
    ran = evalcore("run", "--json", suite, store=tmp_path)
    found = imported("report", ran.report["run"]["id"], store=tmp_path)
    assert found & (NEVER | NOT_FOR_PLAIN_CHECKS) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=" ".join)
def test_help_imports_no_more_than_it_prints(arguments: list[str], tmp_path: Path) -> None:
    assert imported(*arguments, store=tmp_path) & (NEVER | NOT_FOR_HELP) == set()


def test_help_of_a_command_imports_its_options_and_not_what_it_does(tmp_path: Path) -> None:
    names = imported_modules("run", "--help", store=tmp_path)
    assert "evalcore.cli.options" in names
    assert names & (NEVER | NOT_FOR_HELP) == set()
    assert names & {f"evalcore.{name}" for name in NOT_FOR_OPTIONS} == set()
