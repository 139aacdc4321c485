"""JUnit XML as Jenkins and GitLab read it."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.report.junit import render
from evalcore.report.view import CaseFacts
from tests.support.report_runs import MadeRun, assertion, case, item, run_of

# The attributes and children that the schema of Jenkins' xUnit plug-in knows (junit-10.xsd).
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "id"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "property": {"name", "value"},
    "properties": set(),
    "system-out": set(),
}
SKIPPED = item(None) | {"status": "skipped", "error": None, "reason": "budget: max_tokens"}


def junit(run: MadeRun) -> Element:
    return fromstring("".join(render(run)))


def verdict(root: Element, case_id: str) -> Element | None:
    """Return the element that says why a case did not pass."""
    found = next(one for one in root.iter("testcase") if one.get("name") == case_id)
    verdicts = [child for child in found if child.tag != "system-out"]
    assert len(verdicts) <= 1
    return verdicts[0] if verdicts else None


MIXED = run_of(
    case("good"),
    case("bad", item("failed")),
    case("broken", item(None)),
    case("stuck", item("blocked")),
    case("left", SKIPPED),
)


def test_each_outcome_has_its_element() -> None:
    root = junit(MIXED)
    tags = {}
    for name in ("good", "bad", "broken", "stuck", "left"):
        found = verdict(root, name)
        tags[name] = None if found is None else found.tag
    assert tags == {
        "good": None, "bad": "failure", "broken": "error", "stuck": "failure", "left": "skipped"
    }  # fmt: skip


def test_the_counts_are_those_of_the_elements() -> None:
    root = junit(MIXED)
    (suite,) = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "2", "errors": "1", "skipped": "1"
    }  # fmt: skip
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("5", "2", "1")


def test_times_are_in_seconds() -> None:
    root = junit(run_of(case("a", item(), item()), case("b", item(None))))
    assert [one.get("time") for one in root.iter("testcase")] == ["2.400", "0.000"]
    assert root[0].get("time") == "2.400"
    assert (root[0].get("timestamp"), root.get("time")) == ("2026-05-18T10:00:00", "2.500")


def test_a_failure_says_what_was_expected_and_what_came() -> None:
    checks = [assertion("a", "failed"), assertion("b"), assertion("c", "failed", block="draft")]
    found = verdict(junit(run_of(case("bad", item("failed", assertions=checks)))), "bad")
    assert found is not None
    assert found.text is not None
    assert found.get("message") == "a (contains, failed): does not contain 'yes' (and 1 more)"
    assert found.text.count("  expected: yes\n  actual:   no, never") == 2
    assert "draft: c (contains, failed)" in found.text
    assert "b (contains" not in found.text


def test_an_error_has_its_kind_and_message() -> None:
    found = verdict(junit(MIXED), "broken")
    assert found is not None
    assert (found.get("type"), found.get("message")) == (
        "timeout",
        "timeout: no answer within 5 s",
    )


def test_a_failure_has_its_input_and_output_beside_it() -> None:
    run = run_of(case("bad", item("failed"), facts=CaseFacts("Say it.")))
    said = junit(run).findtext("testsuite/testcase/system-out")
    assert said == "input:\nSay it.\n\noutput:\nno, never"


def test_iterations_are_folded_into_their_case() -> None:
    root = junit(run_of(case("flaky", item(), item("failed"), item(None))))
    found = verdict(root, "flaky")
    assert len(list(root.iter("testcase"))) == 1
    assert found is not None
    assert found.tag == "error"
    assert found.text is not None
    assert found.text.startswith("iteration 1: says-yes")
    assert "iteration 2: timeout: no answer" in found.text


def test_a_case_that_passed_by_its_reducer_has_no_failure() -> None:
    assert (
        verdict(junit(run_of(case("lucky", item(), item("failed"), passed=True))), "lucky") is None
    )


def test_each_variant_is_a_suite() -> None:
    root = junit(
        run_of(
            case("a", variant="base"),
            case("a", item("failed"), variant="new", group="g"),
            suite="demo",
        )
    )
    assert [(one.get("name"), one.get("failures")) for one in root] == [
        ("demo [base]", "0"),
        ("demo [new]", "1"),
    ]
    assert [one.get("classname") for one in root.iter("testcase")] == ["demo.base", "demo.g.new"]


def test_properties_hold_score_decision_and_gates() -> None:
    root = junit(MIXED)
    properties = {one.get("name"): one.get("value") for one in root.iter("property")}
    assert properties["decision"] == "fail"
    assert properties["run"] == "20260518T100000Z-0a1b2c"
    assert properties["gate.pass_rate"] == "fail: pass rate 0.5 < 1"
    assert float(properties["score"] or "") == pytest.approx(0.2)


def test_a_run_too_large_to_be_listed_counts_all_of_its_cases() -> None:
    root = junit(MIXED.with_report(cases_complete=False))
    assert root[0].get("tests") == root.get("tests") == "5"
    assert "only those that did not pass" in "".join(
        one.get("value") or "" for one in root.iter("property")
    )


@given(st.text(st.characters()))
def test_any_text_gives_xml_of_the_known_shape(text: str) -> None:
    checks = [assertion(text, "failed", actual=text, expected=text, message=text, block=text)]
    broken = item(None) | {"error": {"kind": text, "message": text}}
    run = run_of(
        case(f"a{text}", item("failed", output=text, assertions=checks), facts=CaseFacts(text)),
        case(f"b{text}", broken, group=text, variant=f"v{text}"),
        suite=text,
    )
    for element in junit(run).iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag]
