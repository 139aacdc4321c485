"""The contract of the shell: what commands print, and the exit codes they end with."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.service import EVALCORE
from tests.support.shell import CONFORMANCE, Ended, Json, environment, evalcore

RUN_KEYS = {"id", "mode", "started_at", "ended_at", "duration_s", "reexecuted", "engine"}
REPORT_KEYS = {
    "run", "suite", "format", "decision", "score", "threshold", "counts", "summary", "comparison",
    "gates", "cases",
}  # fmt: skip
COUNT_KEYS = {
    "planned", "completed", "error", "cancelled", "skipped", "passed", "failed", "blocked",
}  # fmt: skip
SUMMARY_KEYS = {
    "pass_rate", "avg_latency_ms", "avg_cost_usd", "total_cost_usd", "total_tokens", "regressions",
    "improvements",
}  # fmt: skip
GATE_KEYS = {"name", "outcome", "message", "details"}
CASE_KEYS = {"id", "group", "variant", "score", "passed", "items"}
ITEM_KEYS = {"iteration", "status", "outcome", "score", "error", "metrics", "scores", "assertions"}
METRIC_KEYS = {"latency_ms", "cost_usd", "input_tokens", "output_tokens"}
ASSERTION_KEYS = {
    "name", "type", "block", "score", "outcome", "weight", "required", "actual", "expected",
    "message",
}  # fmt: skip


class Passed(NamedTuple):
    """A run of `passing`, for tests that only look at it."""

    ended: Ended
    report: Json
    store: Path

    @property
    def id(self) -> str:
        run_id: str = self.report["run"]["id"]
        return run_id


@pytest.fixture(scope="module")
def passed(suite: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Passed:
    store = tmp_path_factory.mktemp("store")
    ended = evalcore("run", "--json", suite["passing"], store=store)
    return Passed(ended, ended.report, store)


def test_a_report_has_every_field_of_the_specification(passed: Passed) -> None:
    report = passed.report
    item = report["cases"][0]["items"][0]
    for found, wanted in (
        (report, REPORT_KEYS),
        (report["run"], RUN_KEYS),
        (report["counts"], COUNT_KEYS),
        (report["summary"], SUMMARY_KEYS),
        (report["gates"][0], GATE_KEYS),
        (report["cases"][0], CASE_KEYS),
        (item, ITEM_KEYS),
        (item["metrics"], METRIC_KEYS),
        (item["assertions"][0], ASSERTION_KEYS),
    ):
        assert wanted <= set(found)


def test_a_report_says_what_happened(passed: Passed) -> None:
    report = passed.report
    assert (report["suite"], report["format"]) == ("passing", "test-file")
    assert (report["decision"], report["score"], report["threshold"]) == ("pass", 1.0, 0.8)
    assert report["counts"] == dict.fromkeys(COUNT_KEYS, 0) | {
        "planned": 3, "completed": 3, "passed": 3,
    }  # fmt: skip
    assert report["summary"]["total_cost_usd"] == pytest.approx(0.002)
    assert report["summary"]["total_tokens"] == 9
    assert [case["id"] for case in report["cases"]] == ["greeting", "farewell", "silence"]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        pytest.param(["passing", "errors"], 4, id="errors before pass"),
        pytest.param(["errors", "failing", "passing"], 1, id="failed before errors"),
        pytest.param(["failing", "invalid"], 2, id="load error before all"),
    ],
)
def test_the_exit_code_is_the_worst_decisions(
    names: list[str], code: int, suite: dict[str, Path], store: Path
) -> None:
    assert evalcore("run", *(suite[name] for name in names), store=store).code == code


def test_nothing_runs_if_one_suite_does_not_load(suite: dict[str, Path], store: Path) -> None:
    ended = evalcore("run", "--json", suite["passing"], suite["invalid"], store=store)
    assert (ended.code, ended.out) == (2, "")
    assert "Did you mean 'contains'?" in ended.err
    assert f"{suite['invalid']}:6: tests[0].assertions[0]" in ended.err
    assert "Traceback" not in ended.err
    assert evalcore("runs", "list", "--json", store=store).out.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["run"], id="no suite"),
        pytest.param(["run", "no-such-file.yaml"], id="no file"),
        pytest.param(["run", "."], id="a folder"),
        pytest.param(["rnu"], id="unknown command"),
        pytest.param(["run", "--no-such-flag"], id="unknown flag"),
        pytest.param(["run", "--threshold", "nan", "suite.yaml"], id="not a number"),
        pytest.param(["query", "--timeout", "nan", "SELECT 1"], id="no time"),
        pytest.param(["run", "--resume", "20260101T000000Z-000000"], id="unknown run"),
        pytest.param(["run", "--resume", "x", "suite.yaml"], id="resume with a file"),
        pytest.param(["report", "nonsense"], id="nonsense as run"),
        pytest.param(["schema", "nonsense"], id="unknown format"),
        pytest.param(["runs", "list", "--store", "ftp://a/b"], id="unknown store"),
    ],
)
def test_a_usage_mistake_is_one_message_and_exit_code_2(arguments: list[str], store: Path) -> None:
    ended = evalcore(*arguments, store=store)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.strip()
    assert "Traceback" not in ended.err


def test_runs_are_listed_newest_first_even_within_a_second(
    suite: dict[str, Path], store: Path
) -> None:
    names = ["passing", "failing", "passing", "passing"]
    ended = evalcore("run", "--json", *(suite[name] for name in names), store=store)
    made = [line["run"]["id"] for line in ended.lines]
    assert [(line["suite"], line["decision"]) for line in ended.lines[:2]] == [
        ("passing", "pass"),
        ("failing", "fail"),
    ]
    (listed,) = json.loads(f"[{evalcore('runs', 'list', '--json', store=store).out}]")
    assert [run["id"] for run in listed] == made[::-1]
    assert [run["suite"] for run in listed] == names[::-1]
    assert {run["state"] for run in listed} == {"completed"}
    ended = evalcore("runs", "list", "--suite", "failing", "--json", store=store)
    assert [run["suite"] for run in json.loads(ended.out)] == ["failing"]


def test_runs_show_prints_the_manifest(passed: Passed) -> None:
    report = passed.report
    manifest = evalcore("runs", "show", passed.id, "--json", store=passed.store).report
    assert manifest["id"] == passed.id
    assert (manifest["state"], manifest["decision"]) == ("completed", "pass")
    assert manifest["counts"] == report["counts"]
    assert manifest["plan"]["items"] == 3


def test_report_prints_what_run_printed(passed: Passed) -> None:
    shown = evalcore("report", passed.id, "--json", store=passed.store)
    assert (shown.out, shown.code) == (passed.ended.out, 0)


@pytest.mark.parametrize("flag", ["--json", "--verbose"])
def test_standard_output_holds_the_report_and_nothing_else(
    flag: str, suite: dict[str, Path], store: Path
) -> None:
    ended = evalcore("run", flag, suite["warns"], store=store)
    assert "Warning" not in ended.out
    assert "criteria is defined but no evaluator" in ended.err


def test_workflow_files_have_their_checked_scores(store: Path) -> None:
    paths = sorted((CONFORMANCE / "workflow-harness-suites").glob("*.yaml"))
    for path, report in zip(
        paths, evalcore("run", "--json", *paths, store=store).lines, strict=True
    ):
        expected = json.loads(path.with_suffix(".expected.json").read_text("utf-8"))
        assert report["score"] == pytest.approx(expected["score"], abs=1e-9)
        assert (report["decision"] == "pass") == expected["passed"]
        found = {case["id"]: (case["score"], case["passed"]) for case in report["cases"]}
        assert found == {
            name: (pytest.approx(case["score"], abs=1e-9), case["passed"])
            for name, case in expected["cases"].items()
        }


def test_validate_runs_nothing_and_lists_every_mistake(suite: dict[str, Path], store: Path) -> None:
    ended = evalcore("validate", "--json", suite["passing"], suite["invalid"], store=store)
    good, bad = ended.lines
    assert (good["valid"], good["cases"], good["format"]) == (True, 3, "test-file")
    assert (bad["valid"], ended.code) == (False, 2)
    assert bad["problems"][0]["line"] == 6
    assert not store.exists()


def test_plan_tells_the_size_and_runs_nothing(suite: dict[str, Path], store: Path) -> None:
    plan = evalcore("plan", "--json", "-n", "4", suite["passing"], store=store).report
    assert (plan["cases"], plan["iterations"], plan["items"]) == (3, 4, 12)
    assert [gate["gate"] for gate in plan["gates"]] == ["pass_rate", "errors"]
    assert not store.exists()


GIVEN = "tests: [{id: a, input: hi, fixtures: {output: x}, assertions: [{type: equals, value: x}]}]"


@pytest.mark.parametrize(("command", "file"), [("run", "f.eval.yaml"), ("validate", "f.py")])
def test_a_folder_that_is_not_utf_8_is_a_mistake_of_the_file(
    command: str, file: str, tmp_path: Path, store: Path
) -> None:
    folder = tmp_path / os.fsdecode(b"d\xff")
    folder.mkdir()
    (folder / file).write_text(GIVEN)
    ended = evalcore(command, file, store=store, cwd=folder, forked=False)
    assert ended.code == 2
    assert f"{file}: its name or that of a folder above it is not UTF-8" in ended.err
    assert not list(store.glob("runs/*"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", b"f\xff.eval.yaml"],
        ["runs", "list", "--store", b"f\xff"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_argument_that_is_not_utf_8_is_a_usage_mistake(
    arguments: list[str | bytes], tmp_path: Path
) -> None:
    ended = evalcore(*map(os.fsdecode, arguments), cwd=tmp_path, forked=False)
    assert (ended.code, ended.out) == (2, "")
    assert "is not UTF-8" in ended.err
    assert not list(tmp_path.iterdir())


def test_a_setting_that_is_not_utf_8_is_a_usage_mistake_and_not_shown(tmp_path: Path) -> None:
    env = {"EVALCORE_TOKEN": os.fsdecode(b"secret\xff")}
    ended = evalcore("runs", "list", cwd=tmp_path, env=env, forked=False)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("EVALCORE_TOKEN is not UTF-8")
    assert "secret" not in ended.err


def test_what_an_encoding_does_not_have_is_escaped(tmp_path: Path, store: Path) -> None:
    (tmp_path / "f.eval.yaml").write_text(GIVEN.replace("output: x", "output: \u2713"), "utf-8")
    env = environment(store, PYTHONIOENCODING="ascii")
    ended = subprocess.run(
        [EVALCORE, "run", "f.eval.yaml"], cwd=tmp_path, env=env, capture_output=True, check=False
    )
    assert ended.returncode == 1, ended.stderr
    assert b"FAIL" in ended.stdout


def test_a_reader_who_reads_no_further_still_gets_the_decision(tmp_path: Path, store: Path) -> None:
    (tmp_path / "f.eval.yaml").write_text(GIVEN.replace("output: x", "output: y"), "utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        command = [EVALCORE, "run", "f.eval.yaml", "--json"]
        env = environment(store)
        ended = subprocess.run(command, cwd=tmp_path, env=env, stdout=closed, check=False)
    assert ended.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_takes_no_more_is_told_as_that(tmp_path: Path, store: Path) -> None:
    (tmp_path / "f.eval.yaml").write_text(GIVEN, "utf-8")
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [EVALCORE, "run", "f.eval.yaml"],
            cwd=tmp_path,
            env=environment(store),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 4
    message = ended.stderr.decode()
    assert message.startswith("cannot write to standard output: No space left on device")
    assert "Traceback" not in message


def test_terminal_output_is_free_of_control_characters(tmp_path: Path, store: Path) -> None:
    path = tmp_path / "evil.eval.yaml"
    path.write_text(
        'tests:\n- id: "a\\e[31mred"\n  input: a\n  fixtures: {output: "b\\e[2J"}\n'
        "  assertions: [{type: equals, value: c}]\n",
        "utf-8",
    )
    ended = evalcore("run", path, store=store)
    assert ended.code == 1
    assert "\x1b" not in ended.out + ended.err


def test_a_warning_is_one_line_whatever_a_case_is_called(tmp_path: Path, store: Path) -> None:
    path = tmp_path / "named.eval.yaml"
    path.write_text(
        'tests: [{id: "a\\nb", input: a, criteria: Is polite., fixtures: {output: b}}]\n', "utf-8"
    )
    ended = evalcore("run", path, store=store)
    assert [line.partition(" needs ")[0] for line in ended.err.splitlines()] == [
        f"Warning: {path}: case 'a\\nb'"
    ]
