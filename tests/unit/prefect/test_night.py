"""A night of many suites: which they are, what the night comes to, what its report says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Crashed, Failed
from pydantic import ValidationError

from evalcore.prefect import states
from evalcore.prefect.nightly import NightlyParameters, SuiteEnd, night_markdown
from evalcore.prefect.parameters import EvaluateParameters, find_suites


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("a.eval.yaml", "evals/c.eval.yaml", "evals/b.eval.yaml", "evals/deep/d.eval.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / ".hidden").mkdir()
    (root / ".hidden" / "e.eval.yaml").touch()
    (tmp_path / "outside.eval.yaml").touch()
    return root


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        pytest.param(["a.eval.yaml"], [("a.eval.yaml", True)], id="a file"),
        pytest.param(["gone.yaml"], [("gone.yaml", False)], id="no file"),
        pytest.param(
            ["evals/*.yaml"],
            [("evals/b.eval.yaml", True), ("evals/c.eval.yaml", True)],
            id="alphabetical",
        ),
        pytest.param(
            ["evals/c.eval.yaml", "evals/*.yaml"],
            [("evals/c.eval.yaml", True), ("evals/b.eval.yaml", True)],
            id="each once, where it was named first",
        ),
        pytest.param(
            ["**/*.eval.yaml"],
            [
                ("a.eval.yaml", True),
                ("evals/b.eval.yaml", True),
                ("evals/c.eval.yaml", True),
                ("evals/deep/d.eval.yaml", True),
            ],
            id="at any depth, nothing hidden",
        ),
        pytest.param(["none/*.yaml"], [("none/*.yaml", False)], id="no match"),
        pytest.param(["../*.yaml"], [("../*.yaml", False)], id="not above the folder"),
        pytest.param(["/tmp/*.yaml"], [("/tmp/*.yaml", False)], id="not elsewhere"),
        pytest.param(["eval?"], [("eval?", False)], id="no folder"),
    ],
)
def test_patterns_name_files(folder: Path, patterns: list[str], found: list[Any]) -> None:
    assert list(find_suites(patterns, folder).items()) == found


def test_the_night_asks_what_a_run_of_one_suite_does_in_the_same_words() -> None:
    mine, theirs = NightlyParameters.model_fields, EvaluateParameters.model_fields
    assert next(iter(mine)) == "suites"
    assert set(theirs) - set(mine) == {"suite", "cases", "resume"}
    for name in set(theirs) & set(mine):
        assert mine[name].description == theirs[name].description
        assert mine[name].default == theirs[name].default


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="no suites"),
        pytest.param({"suites": ["a"], "threshold": 2}, id="a threshold above 1"),
        pytest.param({"suites": ["a"], "cases": ["x"]}, id="cases of one suite"),
    ],
)
def test_parameters_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NightlyParameters(**given)


def test_what_is_asked_of_the_night_is_asked_of_each_suite() -> None:
    night = NightlyParameters(suites=["a", "b"], **{"threshold": 0.5, "store": "s3://x/y"})
    parameters = EvaluateParameters(**night.of_suite("b"))
    assert (parameters.suite, parameters.threshold, parameters.store) == ("b", 0.5, "s3://x/y")


GOOD: State[Any] = Completed(message="fine")
FAILED: State[Any] = Failed(name=states.GATE_FAILED, message="pass rate 0 < 1")
INVALID: State[Any] = Failed(name=states.SUITE_INVALID, message="b.yaml:1: no tests")
UNSURE: State[Any] = Failed(name=states.INCONCLUSIVE, message="too few")
ERRORS: State[Any] = Failed(name=states.ERRORS, message="2 items are in error")


@pytest.mark.parametrize(
    ("ended", "name"),
    [
        pytest.param([GOOD, GOOD], "Completed", id="all passed"),
        pytest.param([GOOD, FAILED], "GateFailed", id="one failed"),
        pytest.param([INVALID, GOOD], "SuiteInvalid", id="one does not load"),
        pytest.param([INVALID, FAILED], "GateFailed", id="failed is worse than not loaded"),
        pytest.param([UNSURE, ERRORS], "Errors", id="errors are worse than inconclusive"),
        pytest.param([UNSURE, GOOD], "Inconclusive", id="inconclusive is worse than passed"),
        pytest.param([GOOD, Crashed(message="gone")], "Errors", id="a crash"),
        pytest.param([GOOD, Failed(message="Boom")], "Errors", id="a failure of Prefect's"),
        pytest.param([GOOD, Cancelled(message="stop")], "Errors", id="somebody stopped one"),
    ],
)
def test_the_night_has_the_worst_state(ended: list[State[Any]], name: str) -> None:
    state = states.worst([(str(number), one) for number, one in enumerate(ended)])
    assert state.name == name


def test_the_state_names_every_suite_that_did_not_pass() -> None:
    state = states.worst([("a", GOOD), ("b", INVALID), ("c", FAILED)])
    assert state.message == (
        "2 of 3 suites did not pass: b: SuiteInvalid: b.yaml:1: no tests; "
        "c: GateFailed: pass rate 0 < 1"
    )


def test_a_suite_without_a_decision_says_why_in_the_report() -> None:
    markdown = night_markdown([SuiteEnd("b.yaml", INVALID)], states.worst([("b.yaml", INVALID)]))
    assert markdown.startswith("# Nightly: SuiteInvalid, 0 of 1 suite passed\n")
    assert "\n```text\nb.yaml:1: no tests\n```\n" in markdown


def test_names_of_suites_are_no_markdown() -> None:
    markdown = night_markdown([SuiteEnd("<b>|*x*.yaml", GOOD)], GOOD)
    assert "| &lt;b&gt;\\|\\*x\\*.yaml |" in markdown
