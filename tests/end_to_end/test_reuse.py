"""What was executed before is not executed again: `run --reuse` and `regrade`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.shell import INLINE, Ended, comparable, evalcore

# A target that writes down each of its calls.
TARGET = """
from pathlib import Path

def answer(input, *, context):
    with open(Path(__file__).with_name("calls.txt"), "a") as file:
        file.write(f"{context.case_id} {context.variant} {context.iteration}\\n")
    if "explode" in input:
        raise ValueError("boom")
    return f"answer to {input}"
"""


class Project:
    """A suite file, its target beside it, and the calls that the target got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.tests = [
            {"id": f"t{n}", "input": f"question {n}", "assertions": [contains("answer")]}
            for n in range(12)
        ]
        (folder / "reuse_target.py").write_text(TARGET)

    def write(self) -> None:
        suite = {
            "name": "reuse",
            "targets": [
                {"name": name, "provider": "python", "callable": "reuse_target:answer"}
                for name in ("left", "right")
            ],
            "execution": {"targets": ["left", "right"]},
            "evalcore": {"iterations": 2},
            "tests": self.tests,
        }
        (self.folder / "suite.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))

    def run(self, *arguments: str) -> Ended:
        self.write()
        (self.folder / "calls.txt").write_text("")
        return evalcore(*arguments, "--json", store=self.store, cwd=self.folder, env=INLINE)

    @property
    def calls(self) -> list[str]:
        return sorted((self.folder / "calls.txt").read_text().split("\n")[:-1])


def contains(value: str) -> dict[str, str]:
    return {"type": "contains", "value": value}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_an_unchanged_suite_makes_no_call(project: Project) -> None:
    # The first run of a suite may have the flag.
    first = project.run("run", "suite.yaml", "--reuse")
    assert len(project.calls) == 12 * 2 * 2
    again = project.run("run", "suite.yaml", "--reuse")
    assert project.calls == []
    assert comparable(again.report) == comparable(first.report)
    assert again.report["run"]["id"] != first.report["run"]["id"]


def test_a_changed_case_executes_its_variants_and_iterations_only(project: Project) -> None:
    project.run("run", "suite.yaml")
    project.tests[5]["input"] = "another question"
    project.tests.insert(0, project.tests.pop())  # places do not matter
    project.run("run", "suite.yaml", "--reuse")
    assert project.calls == [f"t5 {side} {n}" for side in ("left", "right") for n in (0, 1)]


def test_a_changed_assertion_is_graded_without_a_call(project: Project) -> None:
    first = project.run("run", "suite.yaml").report["run"]["id"]
    project.tests[3]["assertions"] = [contains("something else")]
    for command in (("run", "suite.yaml", "--reuse"), ("regrade", first)):
        again = project.run(*command)
        assert project.calls == []
        assert again.code == 1
        failed = {case["id"] for case in again.report["cases"] if not case["passed"]}
        assert failed == {"t3"}
        assert again.report["run"]["id"] != first


def test_items_in_error_are_executed_again(project: Project) -> None:
    project.tests[0]["input"] = "explode"
    first = project.run("run", "suite.yaml")
    # An unchanged suite that is graded again gives the same report.
    graded = project.run("regrade", first.report["run"]["id"])
    assert project.calls == []
    assert comparable(graded.report) == comparable(first.report)
    again = project.run("run", "suite.yaml", "--reuse")
    assert len(project.calls) == 4
    assert {call.split()[0] for call in project.calls} == {"t0"}
    assert again.report["counts"]["error"] == 4


def test_evidence_of_a_run_before_the_last_is_found(project: Project) -> None:
    project.run("run", "suite.yaml")
    before = project.tests[1]["input"]
    project.tests[1]["input"] = "meanwhile"
    project.run("run", "suite.yaml", "--reuse")
    project.tests[1]["input"] = before
    project.run("run", "suite.yaml", "--reuse")
    assert project.calls == []


def test_regrade_names_the_missing_suite_file(project: Project) -> None:
    first = project.run("run", "suite.yaml").report
    (project.folder / "suite.yaml").rename(project.folder / "moved.yaml")
    (project.folder / "calls.txt").write_text("")
    run_id = first["run"]["id"]
    refused = evalcore("regrade", run_id, store=project.store, cwd=project.folder, env=INLINE)
    assert refused.code == 2
    assert f"evalcore regrade {run_id} SUITE" in refused.err
    named = evalcore(
        "regrade", run_id, "moved.yaml", store=project.store, cwd=project.folder, env=INLINE
    )
    assert named.code == 0


def test_regrade_of_another_suites_run_is_refused(project: Project) -> None:
    first = project.run("run", "suite.yaml").report
    (project.folder / "other.jsonl").write_text(
        '{"id": "a", "input": "x", "output": "y", "assertions": '
        '[{"type": "contains", "value": "y"}]}'
    )
    refused = evalcore(
        "regrade", first["run"]["id"], "other.jsonl", store=project.store, cwd=project.folder
    )
    assert refused.code == 2
    assert "suite 'other'" in refused.err


def test_large_outputs_come_back_whole(project: Project) -> None:
    target = TARGET.replace('f"answer to {input}"', '"answer " + "x" * 200_000 + " end"')
    (project.folder / "reuse_target.py").write_text(target)
    for test in project.tests:
        test["assertions"] = [{"type": "ends-with", "value": "x end"}]
    assert project.run("run", "suite.yaml").code == 0
    for test in project.tests:
        test["assertions"] = [{"type": "ends-with", "value": "xx end"}]
    assert project.run("run", "suite.yaml", "--reuse").code == 0
    assert project.calls == []


# A target, whether it sees metadata, and what its suite's tests have beside it.
SEEN = {
    "a program": ({"provider": "command"}, False),
    "a Python function": ({"provider": "python", "callable": "reuse_target:answer"}, True),
}


@pytest.mark.parametrize(("target", "sees"), SEEN.values(), ids=SEEN)
def test_metadata_that_a_target_does_not_see_executes_nothing_again(
    target: dict[str, object], sees: bool, project: Project
) -> None:
    program = {"command": "echo call >> calls.txt; echo answer"} if "callable" not in target else {}
    suite = {
        "targets": [{"name": "own", **program, **target}],
        "execution": {"target": "own"},
        "tests": [{"id": "t", "input": "question", "assertions": [contains("answer")]}],
    }
    path = project.folder / "own.eval.yaml"
    made = []
    for more in ({}, {"tags": ["new"]}, {"tags": ["new"], "metadata": {"owner": "me"}}):
        test = suite["tests"][0] | more  # type: ignore[index]
        path.write_text(yaml.safe_dump(suite | {"tests": [test]}))
        ended = evalcore(
            "run", "--reuse", "--json", path, store=project.store, cwd=project.folder, env=INLINE
        )
        assert ended.report["counts"]["passed"] == 1, ended.err
        made.append(len(project.calls))
    assert made == [1, 1, 2 if sees else 1]


def test_metadata_that_only_graders_see_is_graded_again(project: Project) -> None:
    grader = "def check(artifact, context):\n    return context['metadata'].get('owner') == 'me'\n"
    (project.folder / "reuse_grader.py").write_text(grader)
    test = {
        "id": "t",
        "input": "q",
        "assertions": [{"type": "python", "callable": "reuse_grader:check"}],
    }
    suite = {"name": "s", "flow": "own", "targets": [{"name": "own", "provider": "echo"}]}
    passed = []
    for owner in ("you", "me"):
        cases = [{**test, "metadata": {"owner": owner}}]
        path = project.folder / "own.eval.yaml"
        path.write_text(yaml.safe_dump({**suite, "variants": [{"id": "v"}], "cases": cases}))
        ended = evalcore(
            "run", "--reuse", "--json", path, store=project.store, cwd=project.folder, env=INLINE
        )
        passed.append(ended.report["counts"]["passed"])
    assert passed == [0, 1]
