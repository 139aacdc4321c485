"""`--report FORM,…` and `evalcore report RUN --FORM`: the same run in every form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.shell import Ended, evalcore

FILES = {
    "html": "report.html",
    "junit": "report.junit.xml",
    "markdown": "report.md",
    "github": "report.github.txt",
}
SUITE = """\
name: mixed
tests:
  - {id: good, input: Say yes., tags: [easy], fixtures: {output: 'yes'},
     assertions: [{type: contains, value: 'yes'}]}
  - id: bad
    input: {question: "Say <b>yes</b>."}
    fixtures: {output: "no </script>"}
    assertions: [{type: contains, value: 'yes', name: agrees}]
"""


@dataclass(frozen=True)
class Ran:
    """A run with all of its forms."""

    run_id: str
    folder: Path
    store: Path
    cwd: Path
    ended: Ended


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("forms")
    (folder / "mixed.eval.yaml").write_text(SUITE, "utf-8")
    ended = evalcore(
        "run", "--json", "--report", "html, junit,markdown,github,json", "mixed.eval.yaml",
        store=folder / "store", cwd=folder, env=NO_BUILD,
    )  # fmt: skip
    run_id = ended.report["run"]["id"]
    return Ran(
        run_id, folder / "store" / "runs" / "mixed" / run_id, folder / "store", folder, ended
    )


NO_BUILD = {"GITHUB_ACTIONS": "", "GITHUB_STEP_SUMMARY": "", "GITHUB_WORKSPACE": ""}


@pytest.mark.parametrize("form", FILES)
def test_a_form_is_stored_as_it_is_printed_later(form: str, ran: Ran) -> None:
    stored = (ran.folder / FILES[form]).read_text("utf-8")
    printed = evalcore(
        "report", ran.run_id, f"--{form}", store=ran.store, cwd=ran.cwd, env=NO_BUILD
    )
    assert (printed.code, printed.out) == (0, stored)


def test_a_form_is_written_to_a_file(ran: Ran, tmp_path: Path) -> None:
    path = tmp_path / "written"
    form = ("report", ran.run_id, "--markdown")
    ended = evalcore(*form, "-o", path, store=ran.store, cwd=ran.cwd)
    assert (ended.code, ended.out) == (0, "")
    assert path.read_text("utf-8") == (ran.folder / "report.md").read_text("utf-8")


def test_an_annotation_names_the_suites_file(ran: Ran) -> None:
    text = (ran.folder / "report.github.txt").read_text("utf-8")
    assert "::error file=mixed.eval.yaml,title=bad [default]%3A failed::agrees" in text


def test_outside_of_a_build_no_annotation_is_printed(ran: Ran) -> None:
    assert "::error" not in ran.ended.err


def test_a_build_gets_annotations_and_a_summary_added_to_its_own(ran: Ran, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", "utf-8")
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary),
           "GITHUB_WORKSPACE": str(ran.cwd.parent)}  # fmt: skip
    ended = evalcore("run", "--json", "--report", "github", "mixed.eval.yaml",
                     store=tmp_path, cwd=ran.cwd, env=env)  # fmt: skip
    assert f"::error file={ran.cwd.name}/mixed.eval.yaml,title=" in ended.err
    assert ended.report["decision"] == "fail"
    assert summary.read_text("utf-8").startswith("before\n# mixed: fail\n")


def test_a_summary_never_grows_beyond_what_github_takes(ran: Ran, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_bytes(b"x" * (1024 * 1024 - 400))
    env = {"GITHUB_STEP_SUMMARY": str(summary)}
    evalcore("run", "--report", "github", "mixed.eval.yaml", store=tmp_path, cwd=ran.cwd, env=env)
    data = summary.read_bytes()
    assert len(data) <= 1024 * 1024
    assert "is left out" in data.decode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--report", "htlm", "x.yaml"], "--report: unknown form of report 'htlm'. "
         "Did you mean 'html'? Known: html, junit, markdown, github, json"),
        (["report", "RUN", "--html", "--junit"], "one form at a time: html, junit"),
        (["report", "RUN", "-o", "x"], "-o: say which form to write"),
        (["report", "RUN", "--html", "-o", "no/such/folder/x"], "cannot be written: No such file"),
    ],
    ids=["run", "two forms", "no form", "no folder"],
)  # fmt: skip
def test_a_mistake_is_told_with_what_would_work(
    arguments: list[str], message: str, ran: Ran
) -> None:
    given = [ran.run_id if one == "RUN" else one for one in arguments]
    ended = evalcore(*given, store=ran.store, cwd=ran.cwd)
    assert ended.code == 2
    assert message in ended.err
    assert "Traceback" not in ended.err
