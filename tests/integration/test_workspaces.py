"""Workspaces as users meet them: real commands, real git, real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.fork_server import PROGRAM
from tests.support.processes import until
from tests.support.shell import Ended, environment, evalcore

Json = dict[str, Any]
SHELL_TARGET = {"name": "default", "provider": "command"}
PASSES = [{"type": "regex", "value": "^"}]


class Bench:
    """A folder with a suite, a store and a root of workspaces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "workspaces"

    @property
    def env(self) -> dict[str, str]:
        return environment(self.folder / "store", EVALCORE_WORKSPACES=str(self.root))

    def write(self, workspace: Any, tests: list[Json], command: Any = "true", **more: Any) -> None:
        suite = {
            "targets": [{**SHELL_TARGET, "command": command}],
            "tests": [{"input": "hi", "assertions": PASSES, **test} for test in tests],
            **more,
        }
        if workspace is not None:
            suite["workspace"] = workspace
        (self.folder / "s.eval.yaml").write_text(json.dumps(suite))

    def run(self, *flags: str) -> Ended:
        suite = self.folder / "s.eval.yaml"
        return evalcore("run", suite, "--json", *flags, cwd=self.folder, env=self.env)

    def rows(self) -> dict[str, Json]:
        files = str(self.folder / "store/runs/**/results/*.parquet")
        query = "SELECT case_id, status, outcome, error.message, output, evidence FROM "
        found = duckdb.sql(f"{query} read_parquet('{files}')").fetchall()
        names = ("status", "outcome", "error", "output", "evidence")
        return {row[0]: dict(zip(names, row[1:], strict=True)) for row in found}

    def details(self, case: str) -> Json:
        details: Json = json.loads(self.rows()[case]["evidence"] or "{}").get("details", {})
        return details

    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().split() if path.exists() else []

    @property
    def left(self) -> list[Path]:
        return [path for path in self.root.glob("*/*") if path.is_dir()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    template = tmp_path / "template"
    (template / "sub").mkdir(parents=True)
    (template / "a.txt").write_text("one\ntwo\n")
    (template / "sub/b.txt").write_text("b\n")
    (template / "sub/link").symlink_to("../a.txt")
    (template / "run.sh").write_text("echo ran\n")
    (template / "run.sh").chmod(0o755)
    return Bench(tmp_path)


HOOKS = {name: {"command": f"echo {name} >> log"} for name in
         ("before_all", "before_each", "after_each", "after_all")}  # fmt: skip
TEMPLATE = {"template": "template", "isolation": "per_test"}


def test_a_target_works_in_a_copy_of_the_template(bench: Bench) -> None:
    bench.write(TEMPLATE, [{"id": "a"}], "cat a.txt sub/link; ./run.sh; rm a.txt; pwd")
    assert bench.run().code == 0
    output = bench.rows()["a"]["output"]
    assert output.startswith("one\ntwo\none\ntwo\nran\n")
    assert str(bench.root) in output
    assert (bench.folder / "template/a.txt").exists()
    assert bench.left == []


def test_file_changes_are_evidence_with_their_diffs(bench: Bench) -> None:
    command = "echo three >> a.txt; echo n > sub/n.txt; rm sub/b.txt; head -c 9 /dev/zero > z; touch run.sh"  # noqa: E501
    bench.write(TEMPLATE, [{"id": "a"}], command)
    bench.run()
    changes = {entry["path"]: entry for entry in bench.details("a")["file_changes"]}
    assert {path: entry["change"] for path, entry in changes.items()} == {
        "a.txt": "modified", "sub/b.txt": "deleted", "sub/n.txt": "added", "z": "added"
    }  # fmt: skip
    assert (
        changes["a.txt"]["diff"]
        == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,3 @@\n one\n two\n+three\n"
    )
    assert changes["z"] == {"path": "z", "change": "added", "size": 9}
    assert changes["sub/b.txt"]["diff"].startswith("--- a/sub/b.txt\n+++ /dev/null\n")


def test_what_hooks_change_is_not_the_targets_doing(bench: Bench) -> None:
    hooks = {"before_each": {"command": 'echo h > "$EVALCORE_WORKSPACE/hooked"'}}
    bench.write({**TEMPLATE, "hooks": hooks}, [{"id": "a"}], "test -f hooked; echo t >> hooked")
    bench.run()
    (change,) = bench.details("a")["file_changes"]
    assert (change["path"], change["change"]) == ("hooked", "modified")
    assert change["diff"].endswith(" h\n+t\n")


def test_tests_take_turns_in_a_shared_workspace(bench: Bench) -> None:
    tests = [{"id": f"t{number}"} for number in range(6)]
    command = (
        "test ! -e busy || exit 9; touch busy; sleep 0.02; rm busy; echo x >> all; wc -l < all"
    )
    bench.write({"template": "template", "hooks": HOOKS}, tests, command)
    assert bench.run("--concurrency", "4").code == 0
    assert sorted(int(row["output"]) for row in bench.rows().values()) == [1, 2, 3, 4, 5, 6]
    assert bench.log() == ["before_all", *["before_each", "after_each"] * 6, "after_all"]
    assert bench.left == []


def test_parallel_tests_never_share_a_workspace_of_their_own(bench: Bench) -> None:
    tests = [{"id": f"t{number}"} for number in range(12)]
    command = "test ! -e mine || exit 9; touch mine; sleep 0.05; pwd"
    bench.write(TEMPLATE, tests, command, execution={"trials": {"count": 2}})
    assert bench.run("--concurrency", "8").code == 0


def test_each_workspace_has_its_own_hooks_in_order(bench: Bench) -> None:
    bench.write({**TEMPLATE, "hooks": HOOKS}, [{"id": "a"}, {"id": "b"}])
    assert bench.run("--concurrency", "1").code == 0
    assert bench.log() == ["before_all", "before_each", "after_each", "after_all"] * 2


def test_a_hook_is_told_of_its_test_on_standard_input(bench: Bench) -> None:
    copy = {"command": ["sh", "-c", "cat > {{test_id}}.json"]}
    test = {"id": "a", "metadata": {"repo": "x"}, "workspace": {"hooks": {"before_all": copy}}}
    bench.write(None, [test], "pwd")
    report = bench.run().report
    told = json.loads((bench.folder / "a.json").read_text())
    assert told == {
        "workspace_path": bench.rows()["a"]["output"],
        "test_id": "a",
        "eval_run_id": report["run"]["id"],
        "case_input": [{"role": "user", "content": "hi"}],
        "case_metadata": {"repo": "x"},
    }


def test_a_program_that_grades_is_told_of_the_workspace(bench: Bench) -> None:
    (bench.folder / "grade.py").write_text(
        "import json, os, sys\n"
        "path = json.load(sys.stdin)['workspace_path']\n"
        "same = path == os.environ['EVALCORE_WORKSPACE']\n"
        "print(json.dumps({'score': float(same and os.path.exists(path + '/made'))}))\n"
    )
    grader = {"type": "code-grader", "command": ["python3", "grade.py"]}
    bench.write(TEMPLATE, [{"id": "a", "assertions": [grader]}], "touch made")
    assert bench.run().code == 0


def test_the_first_hook_of_a_shared_workspace_is_told_of_no_test(bench: Bench) -> None:
    hooks = {"before_all": {"command": "cat > all.json"}}
    first = {"id": "a", "metadata": {"k": 1}}
    bench.write({"hooks": hooks}, [first, {"id": "b"}])
    bench.run()
    told = json.loads((bench.folder / "all.json").read_text())
    assert (told["test_id"], told["case_input"], told["case_metadata"]) == (None, None, {})

    bench.write({"hooks": hooks}, [first])
    bench.run()
    told = json.loads((bench.folder / "all.json").read_text())
    assert (told["test_id"], told["case_metadata"]) == ("a", {"k": 1})


def test_a_test_replaces_the_suites_hooks_one_by_one(bench: Bench) -> None:
    own = {"hooks": {"before_all": {"command": "echo own >> log"}}}
    bench.write({"hooks": HOOKS}, [{"id": "a", "workspace": own}])
    assert bench.run().code == 0
    assert bench.log() == ["own", "before_each", "after_each", "after_all"]


def test_a_test_with_its_own_first_hook_has_its_own_workspace(bench: Bench) -> None:
    own = {"hooks": {"before_all": {"command": "true"}}}
    bench.write(
        {"template": "template"}, [{"id": "a"}, {"id": "b", "workspace": own}, {"id": "c"}], "pwd"
    )
    bench.run()
    places = {case: row["output"] for case, row in bench.rows().items()}
    assert places["a"] == places["c"] != places["b"]


FAILING: list[tuple[str, Json, int, dict[str, str]]] = [
    ("before_all", {"isolation": "shared"}, 4, {"a": "error", "b": "error"}),
    ("before_each", {"isolation": "shared"}, 4, {"a": "error", "b": "error"}),
    ("after_each", {"isolation": "shared"}, 0, {"a": "completed", "b": "completed"}),
    ("after_all", {"isolation": "per_test"}, 0, {"a": "completed", "b": "completed"}),
]


@pytest.mark.parametrize(
    ("hook", "isolation", "code", "statuses"), FAILING, ids=[f[0] for f in FAILING]
)
def test_a_failing_hook(
    bench: Bench, hook: str, isolation: Json, code: int, statuses: dict[str, str]
) -> None:
    hooks = {hook: {"command": "echo broken >&2; exit 3"}}
    bench.write({**isolation, "hooks": hooks}, [{"id": "a"}, {"id": "b"}])
    ended = bench.run()
    assert {case: row["status"] for case, row in bench.rows().items()} == statuses
    # Nothing but errors: no gate says pass, and the decision says that they prevented it.
    assert ended.code == (0 if code == 0 else ended.code)
    if code:
        assert ended.code != 0
        assert bench.rows()["a"]["error"] == f"the hook {hook} ended with exit code 3: broken"
    else:
        assert f"the hook {hook} ended with exit code 3: broken" in ended.err
    assert bench.left == []


def unique_sleep(number: int) -> str:
    """Return a command that no process of another checkout runs at the same time."""
    return f"sleep 777{number}.{os.getpid():08d}"


def processes(mark: str) -> list[str]:
    """Return the command lines of processes that hold the mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line and "evalcore" not in line:
            found.append(line)
    return found


def test_a_hook_that_hangs_is_killed_with_its_children(bench: Bench) -> None:
    sleep = unique_sleep(1)
    hang = {"command": f"{sleep} & {sleep}", "timeout_ms": 300}
    bench.write({"hooks": {"before_each": hang}}, [{"id": "a"}])
    bench.run()
    assert bench.rows()["a"]["error"] == "the hook before_each took longer than 0.3 s"
    # Who is killed is there until it gets time to end.
    until(lambda: not processes(sleep))


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Give a list of processes that do not outlive the test."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def start(bench: Bench) -> subprocess.Popen[bytes]:
    command = [PROGRAM, "run", str(bench.folder / "s.eval.yaml")]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(
        command, cwd=bench.folder, env=bench.env, stdout=nowhere, stderr=nowhere
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_killed_run_leaves_no_process(
    bench: Bench, started: list[subprocess.Popen[bytes]]
) -> None:
    # Two that stay in its group, one of them without the environment.
    sleep = unique_sleep(2)
    command = f"{sleep} & env -i {sleep} & touch here; {sleep}"
    bench.write(TEMPLATE, [{"id": "a"}, {"id": "b"}], command)
    running = start(bench)
    started.append(running)
    until(lambda: len(processes(sleep)) == 8 and len(bench.left) == 1)
    running.send_signal(signal.SIGKILL)
    running.wait()
    until(lambda: not processes(sleep))


def test_a_stopped_run_cleans_up_with_its_hooks(
    bench: Bench, started: list[subprocess.Popen[bytes]]
) -> None:
    sleep = unique_sleep(3)
    bench.write({**TEMPLATE, "hooks": HOOKS}, [{"id": "a"}], f"touch here; {sleep}")
    running = start(bench)
    started.append(running)
    until(lambda: processes(sleep))
    running.send_signal(signal.SIGTERM)
    running.wait(120)
    until(lambda: not processes(sleep))
    assert bench.log() == ["before_all", "before_each", "after_each", "after_all"]
    assert bench.left == []


def test_workspaces_are_kept_on_request(bench: Bench) -> None:
    bench.write(TEMPLATE, [{"id": "a/../b"}], "echo x > made")
    ended = bench.run("--keep-workspace")
    (kept,) = bench.root.glob("*/*/workspaces/*")
    assert (kept / "made").read_text() == "x\n"
    assert str(kept.parent) in ended.err
    assert bench.details("a/../b")["workspace"] == str(kept)


def git(*arguments: str, cwd: Path) -> str:
    names = {"GIT_AUTHOR_NAME": "n", "GIT_COMMITTER_NAME": "n",
             "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_EMAIL": "e"}  # fmt: skip
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **names}, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    git("init", "-q", "-b", "main", ".", cwd=folder)
    for number in (1, 2, 3):
        (folder / "f").write_text(f"{number}\n")
        git("add", ".", cwd=folder)
        git("commit", "-qm", str(number), cwd=folder)
    git("tag", "second", "HEAD~1", cwd=folder)
    return folder


CHECKOUTS: list[tuple[Any, str]] = [
    (None, "3"),
    ("second", "2"),
    ("main", "3"),
    ({"ref": "main", "ancestor": 2}, "1"),
]


def test_repositories_stand_at_their_commits(bench: Bench, origin: Path) -> None:
    command = "cat code/r/f; git -C code/r status --short; echo 9 > code/r/f"
    tests = []
    for number, (checkout, _) in enumerate(CHECKOUTS):
        repo = {"path": "./code/r", "source": "./origin"}
        repo |= {"checkout": checkout} if checkout else {}
        tests.append({"id": str(number), "workspace": {**TEMPLATE, "repos": [repo]}})
    bench.write(None, tests, command, execution={"trials": {"count": 2}})
    assert bench.run().code == 0
    rows = bench.rows()
    for number, (_, content) in enumerate(CHECKOUTS):
        assert rows[str(number)]["output"] == content
        (change,) = bench.details(str(number))["file_changes"]
        assert change["diff"] == f"--- a/code/r/f\n+++ b/code/r/f\n@@ -1 +1 @@\n-{content}\n+9\n"
    assert (origin / "f").read_text() == "3\n"


def test_a_commit_that_is_not_there_is_the_tests_error(bench: Bench, origin: Path) -> None:
    repo = {"path": "r", "source": "origin", "checkout": "nowhere"}
    bench.write({"repos": [repo]}, [{"id": "a"}])
    bench.run()
    assert bench.rows()["a"]["error"] == f"{origin} has no commit, tag or branch 'nowhere'"


def test_a_folder_that_is_used_as_it_is_stays(bench: Bench) -> None:
    (bench.folder / "mine").mkdir()
    bench.write({"path": "mine"}, [{"id": "a"}, {"id": "b"}], "echo x >> f; wc -l < f")
    assert bench.run("--concurrency", "2").code == 0
    assert (bench.folder / "mine/f").read_text() == "x\nx\n"


def test_a_given_answer_needs_no_workspace(bench: Bench) -> None:
    bench.write({"hooks": HOOKS}, [{"id": "a", "fixtures": {"output": "x"}}])
    assert bench.run().code == 0
    assert bench.log() == []


def test_workers_have_a_shared_workspace_each(bench: Bench) -> None:
    tests = [{"id": f"t{number}"} for number in range(12)]
    bench.write({"hooks": HOOKS}, tests, "sleep 0.2; pwd")
    assert bench.run("--workers", "2").code == 0
    places = {row["output"] for row in bench.rows().values()}
    assert bench.log().count("before_all") == bench.log().count("after_all") == len(places)
    assert 1 <= len(places) <= 2
    assert bench.left == []


def test_a_workspace_stands_in_a_file_of_its_own(bench: Bench) -> None:
    (bench.folder / "shared").mkdir()
    (bench.folder / "shared/ws.yaml").write_text(
        "template: ../template\nhooks: {before_all: {command: pwd > $EVALCORE_WORKSPACE/cwd}}\n"
    )
    bench.write("shared/ws.yaml", [{"id": "a"}], "cat cwd a.txt")
    bench.run()
    assert bench.rows()["a"]["output"] == f"{bench.folder}/shared\none\ntwo"


def test_a_changed_template_is_another_execution(bench: Bench) -> None:
    bench.write(TEMPLATE, [{"id": "a"}], "cat a.txt; echo ran >> ../../../../../log")
    bench.run("--reuse")
    bench.run("--reuse")
    assert bench.log() == ["ran"]
    (bench.folder / "template/a.txt").write_text("other\n")
    bench.run("--reuse")
    assert bench.log() == ["ran", "ran"]


MISTAKES = {
    "unknown": ("{tempalte: x}", "workspace.tempalte: unknown key 'tempalte'. Did you mean"),
    "template": ("{template: nowhere}", "workspace.template: there is no folder 'nowhere'"),
    "outside": ("{template: ../..}", "workspace.template: folder '../..' lies outside"),
    "isolation": ("{isolation: none}", "workspace.isolation: "),
    "idle": ("{hooks: {after_each: {timeout_ms: 5}}}", "hooks.after_each.command: "),
    "hook": ("{hooks: {before: {command: x}}}", "workspace.hooks.before: "),
    "command": ("{hooks: {before_all: {command: []}}}", "hooks.before_all.command: "),
    "timeout": ("{hooks: {before_all: {command: x, timeout_ms: 0}}}", "before_all.timeout_ms: "),
    "both": ("{template: template, path: x}", "workspace.path: is used as it is"),
    "per_test": ("{path: x, isolation: per_test}", "workspace.path: is one folder for all"),
    "repo": ("{repos: [{path: ../x, source: y}]}", "workspace.repos[0].path: '../x' leads out"),
    "option": ("{repos: [{path: x, source: --upload-pack=x}]}", "workspace.repos[0].source: "),
    "source": ("{repos: [{path: x, source: nope}]}", "repos[0].source: there is no folder"),
    "file": ("nowhere.yaml", "workspace: there is no file 'nowhere.yaml'"),
}


def test_mistakes_are_told_with_their_places(bench: Bench) -> None:
    case = "{id: a, input: x, criteria: y, fixtures: {output: z}}"
    for name, (workspace, _) in MISTAKES.items():
        text = f"name: s\nworkspace: {workspace}\ntests: [{case}]\n"
        (bench.folder / f"{name}.eval.yaml").write_text(text)
    files = [f"{name}.eval.yaml" for name in MISTAKES]
    ended = evalcore("validate", *files, cwd=bench.folder)
    assert ended.code == 2
    for name, (_, message) in MISTAKES.items():
        assert f"{name}.eval.yaml:2: " in ended.err
        assert message in ended.err, name
