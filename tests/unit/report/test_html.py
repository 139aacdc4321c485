"""What stands in the HTML report; how it behaves is in tests/browser."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from evalcore.model.suite import Quarantine, QuarantineEntry
from evalcore.model.summary import (
    Comparison,
    Difference,
    DifferenceKind,
    Measure,
    VariantComparison,
)
from evalcore.report import html as html_report
from evalcore.report.html import render
from evalcore.report.view import CaseFacts
from tests.support.report_runs import MadeRun, assertion, case, item, run_of

EVIL = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>\" onclick=alert(1) '{{ 7*7 }}"
)


class Parsed(HTMLParser):
    """A page's elements, its scripts by id (`""` without one), and its visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.styles: list[str] = []
        self.text = ""
        self._inside: str | None = None
        self._script = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self._script = dict(attrs).get("id") or ""
            assert self._script not in self.scripts
            self.scripts[self._script] = ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[self._script] += data
        elif self._inside == "style":
            self.styles.append(data)
        else:
            self.text += data

    def rows(self) -> Any:
        return json.loads(self.scripts["rows"])

    def details(self) -> list[Any]:
        lines = self.scripts["details"].split("\n")[:-1]
        return [json.loads(line) if line else None for line in lines]


def page(run: MadeRun) -> Parsed:
    return Parsed("".join(render(run)))


def words(run: MadeRun) -> str:
    """Return the page's text with one blank between the cells of tables."""
    text = re.sub(r"<[^>]+>", " ", "".join(render(run)))
    return " ".join(html.unescape(text).split())


EVIL_CASE = case(
    EVIL,
    item("failed", output=EVIL, assertions=[assertion(EVIL, "failed", actual=EVIL, message=EVIL)]),
    variant=EVIL,
    group=EVIL,
    facts=CaseFacts(EVIL, EVIL, (EVIL,)),
)


def test_foreign_text_makes_no_element_and_no_attribute() -> None:
    compared = VariantComparison(
        EVIL, EVIL, regressions=(Difference(EVIL, EVIL, DifferenceKind.SCORE, 1.0, 0.0),)
    )
    tame = run_of(case("x", item("failed"), variant="v"))
    evil = run_of(EVIL_CASE, suite=EVIL, skipped=((EVIL, 1),), comparison=Comparison((compared,)))
    found = page(evil)
    assert len(found.scripts) == len(page(tame).scripts) == 4
    for tag, attributes in found.elements:
        assert tag != "img"
        assert not [name for name in attributes if name.startswith("on")]
    assert found.text.count("{{ 7*7 }}") > 3


def test_the_data_is_what_was_given() -> None:
    found = page(run_of(EVIL_CASE))
    ((case_id, group, tags, cells, _),) = found.rows()
    ((text, expected, ((answer,),)),) = found.details()
    assert (case_id, group, tags, text, expected) == (EVIL, EVIL, [0], EVIL, EVIL)
    assert cells[0][:2] == [html_report.OUTCOMES.index("failed"), 0.0]
    (check,) = answer["assertions"]
    assert (answer["outcome"], answer["output"], check["actual"]) == ("failed", EVIL, EVIL)
    assert json.loads(found.scripts["head"])["tags"] == [EVIL]


def test_the_policy_allows_this_script_and_these_styles_and_nothing_else() -> None:
    found = page(run_of(case("a")))
    (policy,) = [
        attributes["content"]
        for tag, attributes in found.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for rule, text in (("script-src", found.scripts[""]), ("style-src", found.styles[0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules.pop(rule) == f"'sha256-{digest}'"
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_page_names_no_other_address() -> None:
    text = "".join(render(run_of(case("a"), case("b", item("failed")))))
    assert re.findall(r"(?:https?:)?//[a-z]", re.sub(r"^// .*$", "", text, flags=re.M)) == []
    assert not re.findall(r"\b(?:src|srcset|action)=|@import|url\(", text)


@pytest.mark.parametrize(
    ("items", "passed", "outcome"),
    [
        ([item()], True, "passed"),
        ([item("failed")], False, "failed"),
        ([item("blocked")], False, "blocked"),
        ([item(), item("failed"), item(None)], False, "error"),
        ([item(), item("failed")], True, "passed"),
        ([item(), item()], False, "failed"),
    ],
    ids=["passed", "failed", "blocked", "error", "passed by its reducer", "failed by its reducer"],
)
def test_a_case_shows_the_worst_of_its_items(
    items: list[dict[str, Any]], passed: bool, outcome: str
) -> None:
    ((_, _, _, (cell,), _),) = page(run_of(case("a", *items, passed=passed))).rows()
    assert html_report.OUTCOMES[cell[0]] == outcome
    assert cell[4] == len(items)


def test_variants_of_a_case_stand_in_one_row() -> None:
    cases = [case("a", variant="x"), case("a", item("failed"), variant="y"), case("b", variant="y")]
    rows = page(run_of(*cases)).rows()
    assert [
        (row[0], [cell and html_report.OUTCOMES[cell[0]] for cell in row[3]]) for row in rows
    ] == [
        ("a", ["passed", "failed"]),
        ("b", [None, "passed"]),
    ]


def test_a_long_text_is_cut_and_says_so() -> None:
    ((text, _, _),) = page(run_of(case("a", facts=CaseFacts("x" * 5_000)))).details()
    assert text == "x" * 4_000 + "\n… (1000 more characters)"


def test_what_changed_is_listed_with_both_values() -> None:
    compared = VariantComparison(
        "new",
        "base",
        regression_kinds={DifferenceKind.ASSERTION: 3},
        missing_count=1,
        regressions=(Difference("new", "a", DifferenceKind.ASSERTION, 1.0, 0.0),),
        missing=(Difference("new", "z", DifferenceKind.MISSING, missing_from="candidate"),),
    )
    text = page(run_of(case("a", variant="base"), comparison=Comparison((compared,)))).text
    assert re.search(r"regression\s*a\s*new\s*base\s*assertion\s*passed → failed", text)
    assert re.search(r"missing\s*z\s*new\s*base\s*missing\s*not in the candidate", text)
    assert "Not listed here: 2 more changes." in text


def test_measures_and_quarantined_cases_stand_apart() -> None:
    compared = VariantComparison(
        "new",
        "base",
        regressed_cases=2,
        hard_regressed_cases=2,
        regression_kinds={DifferenceKind.ASSERTION: 2, DifferenceKind.LATENCY: 28},
        improvement_kinds={DifferenceKind.LATENCY: 40, DifferenceKind.COST: 11},
        measures=(Measure(DifferenceKind.LATENCY, 100.0, 150.0, 90),),
        regressions=tuple(
            Difference("new", name, DifferenceKind.ASSERTION, 1.0, 0.0) for name in ("bad", "known")
        ),
    )
    run = run_of(case("a", variant="base"), case("a", variant="new"))
    summary = replace(run.report.summary, comparison=Comparison((compared,)))
    quarantine = Quarantine((QuarantineEntry("known", "2999-01-01", "ann", ""),))
    text = words(run.with_report(summary=summary, quarantine=quarantine))
    assert "new 1 1 100.0% 1.0000 1 (+1 allowed) 0 0" in text
    counted, allowed = text.split("Allowed regressions: 1 case in quarantine")
    assert "regression bad" in counted
    assert "regression known" not in counted
    assert "regression known" in allowed
    assert "median latency new base 100 ms 150 ms +50% 28 40" in text


def test_the_same_reason_of_several_cases_is_one_line_with_their_number() -> None:
    same = [case(f"c{number}", item("failed")) for number in range(7)]
    text = words(run_of(*same, case("d", item(None))))
    assert "7 says-yes: does not contain 'yes' c0 , c1 , c2 , c3 , c4 …" in text
    assert "1 no answer within 5 s d" in text
    both = [case(f"c{n}", item("failed"), variant=name) for n in range(3) for name in ("x", "y")]
    assert "6 says-yes: does not contain 'yes' c0 , c1 , c2 Cases" in words(run_of(*both))
    assert "Why cases did not pass" not in page(run_of(case("a"))).text


def test_an_assertion_has_the_reasons_of_its_judges() -> None:
    judged = {
        "reasoning": "It names the day.",
        "assertions": [{"text": "names the day", "passed": True, "evidence": "Wednesday"}],
        "votes": [{"judge": "a", "score": 1.0}, {"judge": "b", "score": 0.5}],
    }
    checks = [assertion(details=judged), assertion(details=None)]
    ((_, _, ((answer,),)),) = page(run_of(case("a", item(assertions=checks)))).details()
    assert [check.get("details") for check in answer["assertions"]] == [judged, None]
