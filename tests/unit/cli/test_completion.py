"""What Tab offers: values of arguments and flags, from tables and small reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evalcore.cli.completion import complete
from tests.support.fork_server import PROGRAM
from tests.support.shell import environment

SUITE = """\
tests:
  - {id: refund, tags: [money], input: a}
  - {id: opening, tags: [hours, money], input: b}
evalcore: {variants: [{id: small}, large]}
"""
NEWEST, OLDEST = "20260519T100000Z-0a1b2c", "20260518T100000Z-ffffff"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: suites, other files, and a store with two runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALCORE_STORE", raising=False)
    files = {
        "a.eval.yaml": SUITE,
        "deeper/b.yaml": "workflow: {name: w}\neval: {cases: [{id: one}, {id: two}]}\n",
        "deeper/evals.py": "from evalcore import define_suite\n",
        "deeper/setup.py": "print()\n",
        "rows.jsonl": '{"id": "r-1"}\n\n{"id": "r-2"}\n',
        "group.yaml": "suites: {tone: {tests: {polite: {do: {eval: 1}}}}}\n",
        "saved.yaml": "evals: [{name: two-lines}]\n",
        "compose.yaml": "services: {}\n",
        "report.json": '{"cases": []}',
        "broken.yaml": "tests: [{id: x}\n",
        ".hidden/c.eval.yaml": SUITE,
        "node_modules/d.eval.yaml": SUITE,
        f".evalcore/runs/support/{OLDEST}/manifest.json": "{}",
        f".evalcore/runs/a%20b/{NEWEST}/manifest.json": "{}",
        "other/runs/x/y/z": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def offered(line: str) -> list[str] | None:
    """Return what is offered for the last word of a line."""
    *words, incomplete = line.split(" ")
    items = complete(words[1:], incomplete)
    return None if items is None else [item.value for item in items]


NAMES = ["latest", "last", "last-pass", "main"]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("evalcore ru", ["run", "runs"]),
        ("evalcore runs v", ["verify"]),
        ("evalcore baseline ", ["clear", "list", "set", "show"]),
        ("evalcore run a", ["a.eval.yaml"]),
        ("evalcore validate deeper/", ["deeper/b.yaml", "deeper/evals.py"]),
        ("evalcore run a.eval.yaml --case ", ["refund", "opening"]),
        ("evalcore run a.eval.yaml --case re", ["refund"]),
        ("evalcore run a.eval.yaml --case=re", ["refund"]),
        ("evalcore run a.eval.yaml --case = re", ["refund"]),
        ("evalcore run rows.jsonl --case ", ["r-1", "r-2"]),
        ("evalcore run group.yaml --case ", ["tone/polite"]),
        ("evalcore plan deeper/b.yaml saved.yaml --case ", ["one", "two", "two-lines"]),
        ("evalcore run broken.yaml --case ", []),
        ("evalcore run a.eval.yaml --tag ", ["money", "hours"]),
        ("evalcore run a.eval.yaml --variant ", ["small", "large"]),
        ("evalcore run --gate score", ["score_at_least"]),
        ("evalcore run --format te", ["test-file"]),
        ("evalcore run --resume ", [*NAMES, NEWEST, OLDEST]),
        ("evalcore report 20260518", [OLDEST]),
        ("evalcore compare last 202605", [NEWEST, OLDEST]),
        ("evalcore report --store other l", ["latest", "last", "last-pass"]),
        ("evalcore report --store s3://bucket/x ", NAMES),
        ("evalcore regrade latest a", ["a.eval.yaml"]),
        ("evalcore baseline set ", ["a b", "support"]),
        ("evalcore baseline set support la", ["latest", "last", "last-pass"]),
        ("evalcore runs list --suite s", ["support"]),
        ("evalcore schema sc", ["script-suite"]),
        ("evalcore runs list --store o", ["other", "o"]),
        ("evalcore run --str", None),
        ("evalcore dev x", None),
    ],
)
def test_what_a_word_may_become(line: str, values: list[str] | None) -> None:
    assert offered(line) == values


def test_only_suites_are_offered_as_suites() -> None:
    assert offered("evalcore run ") == [
        *("a.eval.yaml", "broken.yaml", "group.yaml", "rows.jsonl", "saved.yaml"),
        *("deeper/b.yaml", "deeper/evals.py"),
    ]


PROTOCOL = {
    "bash": ({"COMP_WORDS": "evalcore report la", "COMP_CWORD": "2"}, "plain,latest\n"),
    "zsh": ({"COMP_WORDS": "evalcore report la", "COMP_CWORD": "2"}, "plain\nlatest\n_\n"),
    "fish": ({"COMP_WORDS": "evalcore report la", "COMP_CWORD": "la"}, "plain,latest\n"),
}


@pytest.mark.parametrize("shell", PROTOCOL)
def test_each_shell_is_answered_by_its_protocol_without_the_pipeline(
    shell: str, folder: Path
) -> None:
    words, first = PROTOCOL[shell]
    env = environment(**words, _EVALCORE_COMPLETE=f"{shell}_complete", PYTHONPROFILEIMPORTTIME="1")
    ended = subprocess.run(
        [sys.executable, PROGRAM], capture_output=True, text=True, cwd=folder, env=env, check=True
    )
    assert ended.stdout.replace("\r", "").startswith(first)
    for module in ("evalcore.pipeline", "evalcore.analytics", "_duckdb", "boto3"):
        assert f" {module}\n" not in ended.stderr


@pytest.mark.parametrize("line", ["evalcore nope --x ", "evalcore run 'a", "evalcore report ", ""])
def test_what_cannot_be_completed_says_nothing(line: str, folder: Path) -> None:
    (folder / "evalcore.toml").write_text("store = [broken")
    env = environment(
        COMP_WORDS=line, COMP_CWORD=str(line.count(" ")), _EVALCORE_COMPLETE="bash_complete"
    )
    ended = subprocess.run(
        [PROGRAM], capture_output=True, text=True, cwd=folder, env=env, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="asks bash")
def test_bash_completes_by_the_script_that_evalcore_prints(folder: Path) -> None:
    program = f"""
    PATH={Path(PROGRAM).parent}:$PATH
    eval "$(_EVALCORE_COMPLETE=bash_source evalcore)"
    COMP_WORDS=(evalcore run a.eval.yaml --case re) COMP_CWORD=4
    _evalcore_completion evalcore re --case
    echo "${{COMPREPLY[*]}}"
    """
    ended = subprocess.run(
        ["/bin/bash", "-c", program],
        capture_output=True, text=True, cwd=folder, env=environment(), check=True,
    )  # fmt: skip
    assert (ended.stdout, ended.stderr) == ("refund\n", "")
