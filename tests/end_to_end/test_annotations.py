"""What people are asked, from the run that waits to the run that is decided."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evalcore.formats.registry import load_suite
from evalcore.model.run import Decision
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import plan_run
from evalcore.storage.address import open_store
from tests.support.shell import Ended, evalcore

SUITE = """
name: Polite
{section}
tests:
  - id: hello
    input: Say hello
    fixtures: {{output: Hello dear}}
    assertions:
      - {{type: contains, value: Hello}}
      - {{type: human, question: Is it polite?, labels: [yes, no], expected: yes}}
  - id: bye
    input: Say bye
    fixtures: {{output: Bye}}
    assertions:
      - {{type: human, name: warmth, question: How warm?, scale: [1, 5], min_score: 3,
         annotators: 2}}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path)


def write_suite(folder: Path, section: str = "") -> Path:
    path = folder / "polite.eval.yaml"
    path.write_text(SUITE.format(section=section), "utf-8")
    return path


def command(suite: Path, *arguments: str | Path, stdin: str = "") -> Ended:
    return evalcore(*arguments, store=suite.parent / "store", cwd=suite.parent, stdin=stdin)


def label(case: str, assertion: str, value: Any, annotator: str, **more: Any) -> dict[str, Any]:
    row = {"run": "latest", "case": case, "assertion": assertion, "label": value}
    return {**row, "annotator": annotator, **more}


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


ALL = (
    label("hello", "human", "yes", "ann"),
    label("bye", "warmth", 2, "ann"),
    label("bye", "warmth", 5, "bo"),
)


def test_a_run_that_only_lacks_labels_is_inconclusive_until_people_answered(suite: Path) -> None:
    waiting = command(suite, "run", suite, "--json")
    assert waiting.code == 3
    report = waiting.report
    assert report["decision"] == "inconclusive"
    assert report["awaiting"] == {"labels": 3, "items": 2}
    (gate,) = (gate for gate in report["gates"] if gate["name"] == "pass_rate")
    assert gate["message"].startswith("awaiting annotation: 3 labels are missing")
    messages = [a["message"] for case in report["cases"] for a in case["items"][0]["assertions"]]
    assert messages == [
        "",
        "awaiting annotation: 0 of 1 label",
        "awaiting annotation: 0 of 2 labels",
    ]
    assert {case["items"][0]["reason"] for case in report["cases"]} == {"awaiting annotation"}

    assert command(suite, "annotations", "import", "-", stdin=lines(*ALL)).code == 0
    decided = command(suite, "regrade", report["run"]["id"], "--json")
    assert decided.code == 0
    assert "awaiting" not in decided.report
    assert decided.report["cases"][1]["score"] == 1.0
    # A new run of the same outputs uses them, too.
    assert command(suite, "run", suite, "--json").code == 0


def test_every_form_of_the_report_says_how_many_labels_are_missing(suite: Path) -> None:
    forms = ("markdown", "html", "junit", "github")
    shown = command(suite, "run", suite, "--report", ",".join(forms))
    written = [path.read_text("utf-8") for path in (suite.parent / "store").rglob("report.*")]
    assert len(written) == len(forms) + 1
    for text in (shown.out, *written):
        assert "3 labels are missing" in text


@pytest.mark.parametrize(("then", "code"), [("fail", 1), ("inconclusive", 3)])
def test_after_the_deadline_the_suite_says_what_missing_labels_mean(
    tmp_path: Path, then: str, code: int
) -> None:
    section = f"evalcore: {{annotation: {{deadline: 48h, then: {then}}}}}"
    suite = write_suite(tmp_path, section)
    store = open_store(str(tmp_path / "store"))
    run = plan_run(load_suite(suite), store, now=datetime.now(UTC) - timedelta(days=3))
    execute_run(run)
    with finish_run(run, now=datetime.now(UTC) - timedelta(days=2)) as view:
        assert view.report.decision is Decision.INCONCLUSIVE
    late = command(suite, "regrade", run.run_id, "--json")

    assert late.code == code
    (gate,) = (gate for gate in late.report["gates"] if gate["name"] == "pass_rate")
    assert "the deadline is over" in gate["message"]


def test_annotators_answer_in_the_terminal_and_take_back(suite: Path) -> None:
    command(suite, "run", suite)
    order = command(suite, "annotate", "latest", "--as", "ann", stdin="s\ns\n").out
    first = "yes" if order.index("Is it polite?") < order.index("How warm?") else "4"
    second = "4" if first == "yes" else "1"

    ended = command(
        suite, "annotate", "latest", "--as", "ann", stdin=f"{first}\nu\n{first} # sure\n{second}\n"
    )

    assert ended.code == 0
    assert "2 labels of ann stored; 1 missing in the run" in ended.out
    rows = command(suite, "annotations", "export", "latest").lines
    assert [(row["case"], row["label"], row["annotator"]) for row in rows] == [
        ("hello", "yes", "ann"),
        ("bye", 4, "ann"),
    ]
    assert "sure" in [row["comment"] for row in rows]
    assert "variant" not in ended.out


def test_a_wrong_answer_in_a_pipe_ends_the_command_and_keeps_those_before_it(
    suite: Path,
) -> None:
    command(suite, "run", suite)
    ended = command(suite, "annotate", "latest", "--as", "ann", stdin="bogus\n")

    assert ended.code == 2
    assert "'bogus' is not one of" in ended.err
    assert command(suite, "annotations", "export", "latest").out == ""


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_is_exported_can_be_imported_elsewhere_and_twice(
    suite: Path, tmp_path: Path, form: str
) -> None:
    command(suite, "run", suite)
    rows = (*ALL, label("bye", "How warm?", 1, "=cmd", comment="\u2028\x0b+1 'x'\nline"))
    command(suite, "annotations", "import", "-", stdin=lines(*rows))
    file = tmp_path / f"labels.{form}"
    command(suite, "annotations", "export", "latest", file)
    assert form == "jsonl" or "\"'\u2028\x0b+1" in file.read_text()
    objects = sorted((tmp_path / "store" / "annotations").rglob("*.json"))
    contents = {path: json.loads(path.read_bytes()) for path in objects}
    assert len(objects) == 4
    for path in objects:
        path.unlink()

    for stored in (4, 0):
        ended = command(suite, "annotations", "import", file, "--json")
        assert ended.lines == [{"stored": stored, "unchanged": 4 - stored, "outdated": 0}]
    assert {path: json.loads(path.read_bytes()) for path in objects} == contents


def test_all_wrong_rows_are_named_and_nothing_is_stored(suite: Path) -> None:
    command(suite, "run", suite)
    wrong = [
        label("helo", "human", "yes", "ann"),
        label("hello", "humane", "yes", "ann"),
        label("hello", "human", "maybe", "ann"),
        label("hello", "human", "yes", "ann", variant="other"),
        label("hello", "human", "yes", "ann", at="yesterday"),
        label("bye", "warmth", 6, "ann"),
        {"run": "nope", "case": "hello"},
        label("hello", "human", "yes", "ann", colour="red"),
    ]
    text = lines(ALL[0]) + "{\n" + lines(*wrong)

    ended = command(suite, "annotations", "import", "-", stdin=text)

    assert ended.code == 2
    for line in range(2, 11):
        assert f"standard input:{line}: " in ended.err
    assert "Did you mean 'hello'?" in ended.err
    assert not (suite.parent / "store" / "annotations").exists()


def test_an_old_export_does_not_undo_a_change_of_mind(suite: Path) -> None:
    command(suite, "run", suite)
    old = label("hello", "human", "no", "ann", at="2026-01-01T00:00:00Z")
    new = label("hello", "human", "yes", "ann", at="2026-01-02T01:00:00+01:00")
    command(suite, "annotations", "import", "-", stdin=lines(new, old))

    ended = command(suite, "annotations", "import", "-", "--json", stdin=lines(old))

    assert ended.lines == [{"stored": 0, "unchanged": 0, "outdated": 1}]
    (row,) = command(suite, "annotations", "export", "latest").lines
    assert (row["label"], row["at"]) == ("yes", "2026-01-02T00:00:00.000Z")


def test_reports_say_how_well_annotators_agree(suite: Path) -> None:
    rows = [
        *ALL,
        label("hello", "human", "yes", "bo"),
        label("hello", "human", "no", "cy"),
        label("bye", "warmth", 5, "cy"),
    ]
    command(suite, "run", suite)
    command(suite, "annotations", "import", "-", stdin=lines(*rows))

    reported = command(suite, "regrade", "latest", "--json").report["agreement"]

    assert [(each["question"], each["measure"], each["contents"]) for each in reported] == [
        ("How warm?", "krippendorff_alpha", 1),
        ("Is it polite?", "krippendorff_alpha", 1),
    ]
    # One unit of three labels, by hand: D_o = 2/3 and D_e = 2/3 for yes, yes, no.
    assert reported[1]["value"] == pytest.approx(0.0)


def test_a_judge_is_compared_with_the_people_who_answered(suite: Path, tmp_path: Path) -> None:
    judged = tmp_path / "judged.eval.yaml"
    judged.write_text(
        "targets: [{name: judge, provider: mock, response: '{\"score\": 1}'}]\n"
        "execution: {target: judge}\n"
        "tests:\n"
        "  - {id: a, input: x, assertions: [{type: llm-grader, prompt: Polite?, judge: judge}]}\n",
        "utf-8",
    )
    command(suite, "run", suite)
    for rows in (ALL, (label("hello", "human", "no", "ann"),)):
        command(suite, "annotations", "import", "-", stdin=lines(*rows))

    several = command(suite, "judge", "calibrate", "--annotations", "latest", "--suite", judged)
    assert several.code == 2
    assert "--question" in several.err
    ended = command(
        suite,
        "judge",
        "calibrate",
        *("--annotations", "latest", "--question", "warmth", "--suite", judged, "--json"),
    )

    assert ended.code == 0, ended.err
    assert ended.lines[0]["confusion"] == {
        "true_pass": 1,
        "false_pass": 0,
        "false_fail": 0,
        "true_fail": 0,
    }


def test_a_run_that_stops_early_does_not_take_missing_labels_for_failures(tmp_path: Path) -> None:
    question = {"type": "human", "question": "Kind?", "labels": ["yes", "no"], "expected": "yes"}
    tests = [
        {"id": f"c{n}", "input": "x", "fixtures": {"output": str(n)}, "assertions": [question]}
        for n in range(200)
    ]
    section = {"stop_when_decided": True, "gates": [{"gate": "pass_rate", "threshold": 0.5}]}
    suite = tmp_path / "many.eval.yaml"
    suite.write_text(json.dumps({"evalcore": section, "tests": tests}), "utf-8")

    ended = command(suite, "run", suite, "--json")

    assert ended.code == 3
    assert ended.report["counts"]["skipped"] == 0
    assert ended.report["awaiting"]["labels"] == 200


PYTHON_SUITE = """
from evalcore import define_suite, human

def answer(case):
    return "Hello."

suite = define_suite(
    name="asked", flow=answer, variants=[{"id": "base"}],
    cases=[{"id": "a", "input": "Hi", "fixtures": {"output": "Hello."}, "assertions": [
        human("Polite?", labels=["yes", "no"], expected="yes")]}],
)
"""


def test_a_run_of_a_python_suite_is_decided_again_from_its_own_file_if_it_is_signed(
    tmp_path: Path,
) -> None:
    (tmp_path / "asked.py").write_text(PYTHON_SUITE)
    store = tmp_path / "store"

    def command_here(*arguments: str, stdin: str = "") -> Ended:
        return evalcore(*arguments, store=store, stdin=stdin, cwd=tmp_path)

    assert command_here("run", "asked.py").code == 3
    command_here("annotations", "import", "-", stdin=lines(label("a", "human", "yes", "ann")))
    assert command_here("regrade", "latest").code == 0

    for signature in store.rglob("signature.json"):
        signature.unlink()
    refused = command_here("regrade", "latest")
    assert refused.code == 2
    assert "asked.py, which would be imported, and its plan is not signed" in refused.err
