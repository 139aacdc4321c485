"""The HTML report in a real browser: filters, order, keyboard; nothing foreign is executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalcore.model.summary import Comparison, Difference, DifferenceKind, VariantComparison
from evalcore.report.html import render
from evalcore.report.view import CaseFacts
from tests.browser.opened_pages import Browser, find_chromium, opened_browser
from tests.support.report_runs import MadeRun, assertion, case, item, run_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.multiprocess,
    pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium or Chrome here"),
]

EVIL = (
    "</script><script>window.owned = 1</script><img src=http://127.0.0.1:9/x onerror='owned=1'>"
    '<style>@import "http://127.0.0.1:9/s"</style>" onmouseover="owned=1"'
    " \u202e\x1b[31m שלום 👩\u200d🚀"
)
ROWS = "[...document.querySelectorAll('#table tr.case th button')].map(b => b.textContent)"
SHOWN = "document.getElementById('shown').textContent"
FIRST = "document.querySelector('#table tr.case th button')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser


def opened(browser: Browser, run: MadeRun, folder: Path) -> Any:
    """Give the page of a run's report."""
    path = folder / "report.html"
    path.write_text("".join(render(run)), "utf-8")
    browser.page.set_viewport_size({"width": 1_400, "height": 1_000})
    browser.messages.clear()
    browser.requests.clear()
    browser.open(path.as_uri())
    return browser.page


def shows(page: Any, text: str) -> None:
    """Wait until the number of cases is told so."""
    page.wait_for_selector(f"#shown:text-is('{text}')")


def some_run() -> MadeRun:
    """Return three cases in two variants: one fails in the second only, one is in error there."""
    tags = {"a": ("price",), "b": ("price", "day"), "c": ()}
    cases = []
    for name in "abc":
        facts = CaseFacts(f"Input of {name}", None, tags[name])
        cases.append(case(name, item(output=f"fine <{name}>"), variant="base", facts=facts))
        second = {"a": item(), "b": item("failed"), "c": item(None)}[name]
        cases.append(case(name, second, variant="new", facts=facts))
    regression = Difference("new", "b", DifferenceKind.ASSERTION, 1.0, 0.0)
    compared = VariantComparison("new", "base", regressions=(regression,))
    return run_of(*cases, comparison=Comparison((compared,)))


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Any:
    return opened(browser, some_run(), tmp_path)


def fill(page: Any, field: str, value: str) -> None:
    page.evaluate(
        f"{{const f = document.getElementById('{field}'); f.value = {value!r};"
        "f.dispatchEvent(new Event(f.tagName === 'SELECT' ? 'change' : 'input'));}"
    )


def press_outcome(page: Any, outcome: str) -> None:
    page.evaluate(f"document.querySelector('[data-outcome={outcome}]').click()")


def test_regressions_come_first_then_what_did_not_pass(browser: Browser, page: Any) -> None:
    assert page.evaluate(ROWS) == ["b", "c", "a"]
    assert browser.messages == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INPUT OF C", ["c"]),
        ("fine <b>", ["b"]),
        ("price", ["b", "a"]),
        ("no answer within", ["c"]),
        ("nowhere", []),
    ],
    ids=["input", "output with html", "tag", "error", "nothing"],
)
def test_text_is_searched_everywhere(page: Any, text: str, found: list[str]) -> None:
    fill(page, "text", text)
    shows(page, f"{len(found)} of 3 cases")
    assert page.evaluate(ROWS) == found


@pytest.mark.parametrize(
    ("outcome", "found"), [("failed", ["b"]), ("error", ["c"]), ("passed", ["b", "c", "a"])]
)
def test_an_outcome_of_any_variant_is_filtered(page: Any, outcome: str, found: list[str]) -> None:
    press_outcome(page, outcome)
    assert page.evaluate(ROWS) == found


def test_with_one_variant_shown_its_outcomes_count(page: Any) -> None:
    fill(page, "variant", "1")
    press_outcome(page, "passed")
    assert page.evaluate(ROWS) == ["a"]
    assert page.evaluate("document.querySelectorAll('#table thead th').length") == 2


def test_tags_and_changes_are_filtered(page: Any) -> None:
    fill(page, "tag", "1")
    assert page.evaluate(ROWS) == ["b"]
    page.evaluate("document.getElementById('filters').reset()")
    page.evaluate("document.getElementById('changed').click()")
    assert page.evaluate(ROWS) == ["b"]


def test_reset_shows_everything_again(page: Any) -> None:
    press_outcome(page, "failed")
    page.evaluate("document.getElementById('filters').reset()")
    assert page.evaluate(SHOWN) == "3 cases"


def test_a_heads_click_sorts_up_then_down_then_not(page: Any) -> None:
    orders = []
    for _ in range(3):
        page.evaluate("document.querySelector('[data-sort=id]').click()")
        orders.append(page.evaluate(ROWS))
    assert orders == [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]]


def test_a_case_opens_with_expected_and_actual_of_each_variant(page: Any) -> None:
    page.evaluate(f"{FIRST}.click()")
    assert page.evaluate(f"{FIRST}.getAttribute('aria-expanded')") == "true"
    text = page.evaluate("document.querySelector('tr.detail').innerText")
    for part in ("Input of b", "base", "fine <b>", "no, never", "does not contain 'yes'",
                 "regression: passed → failed"):  # fmt: skip
        assert part in text
    page.evaluate(f"{FIRST}.click()")
    assert page.evaluate("document.querySelector('tr.detail')") is None


def test_the_keyboard_suffices(page: Any) -> None:
    page.evaluate(f"{FIRST}.focus()")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    opened_case = "document.querySelector('tr.open th button').textContent"
    page.wait_for_selector("tr.open")
    assert page.evaluate(opened_case) == "c"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("b")
    shows(page, "1 of 3 cases")
    page.keyboard.press("Escape")
    shows(page, "3 cases")


def test_a_change_leads_to_its_case_whatever_is_filtered(page: Any) -> None:
    press_outcome(page, "error")
    page.evaluate("document.querySelector('a[data-case]').click()")
    assert page.evaluate("document.querySelector('tr.open th button').textContent") == "b"


def test_differences_between_expected_and_actual_are_marked(
    browser: Browser, tmp_path: Path
) -> None:
    check = assertion(
        "exact", "failed", expected="It arrives on\tWednesday.", actual="It arrives on  Thursday."
    )
    page = opened(browser, run_of(case("a", item("failed", assertions=[check]))), tmp_path)
    page.evaluate(f"{FIRST}.click()")
    marked = "[...document.querySelectorAll('.pair KIND')].map(e => e.textContent)"
    assert page.evaluate(marked.replace("KIND", "del")) == ["⇥\tWednesday"]
    assert page.evaluate(marked.replace("KIND", "ins")) == ["␣␣Thursday"]


def test_a_judge_is_shown_with_score_and_reasons_also_where_it_passed(
    browser: Browser, tmp_path: Path
) -> None:
    points = [{"text": "names the day", "passed": True, "evidence": "on Wednesday"}]
    judged = {"reasoning": "Day and carrier.", "assertions": points, "votes": []}
    message = "the judge gave 0.92 ≥ 0.8: Day and carrier."
    check = assertion("judge", score=0.92, type="llm-grader", message=message, details=judged)
    page = opened(browser, run_of(case("a", item(assertions=[check]))), tmp_path)
    page.evaluate(f"{FIRST}.click()")
    text = page.evaluate("document.querySelector('.assertion').innerText")
    for part in ("score 0.92", message, "names the day", "on Wednesday"):
        assert part in text
    assert text.count("Day and carrier.") == 1


def test_iterations_that_are_the_same_are_shown_once(browser: Browser, tmp_path: Path) -> None:
    iterations = [item("failed"), item(), item("failed"), item("failed")]
    page = opened(browser, run_of(case("a", *iterations)), tmp_path)
    page.evaluate(f"{FIRST}.click()")
    titles = "[...document.querySelectorAll('.side div > h4 > span')].map(e => e.textContent)"
    assert page.evaluate(titles) == [
        "✗ 3 × failed: iterations 0, 2, 3",
        "✓ iteration 1: passed",
    ]


def test_texts_that_have_nothing_in_common_are_not_marked(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, run_of(case("a", item("failed"))), tmp_path)
    page.evaluate(f"{FIRST}.click()")
    assert page.evaluate("document.querySelectorAll('del, ins').length") == 0


def test_foreign_text_is_shown_and_never_executed(browser: Browser, tmp_path: Path) -> None:
    check = assertion(EVIL, "failed", actual=EVIL, expected=EVIL + "x", message=EVIL)
    facts = CaseFacts(EVIL, EVIL, (EVIL,))
    change = Difference(EVIL, EVIL, DifferenceKind.SCORE, 1.0, 0.0)
    run = run_of(
        case(EVIL, item("failed", output=EVIL, assertions=[check]), variant=EVIL, facts=facts),
        case(EVIL, item(None, error={"kind": EVIL, "message": EVIL}), variant="b", facts=facts),
        suite=EVIL,
        comparison=Comparison((VariantComparison(EVIL, EVIL, regressions=(change,)),), (EVIL,)),
    )
    page = opened(browser, run, tmp_path)
    page.evaluate(f"{FIRST}.click()")
    shown = page.evaluate("document.querySelector('tr.detail').innerText")
    assert shown.count("<script>window.owned = 1</script>") > 5
    assert "\\u202e\\x1b[31m" in shown
    assert page.evaluate("window.owned") is None
    assert page.evaluate("document.images.length + document.styleSheets.length") == 1
    # Leaving the page gives everything that was still to be loaded its chance.
    page.evaluate("new Promise(done => setTimeout(done, 300))")
    assert [one for one in browser.requests if not one.startswith(("file:", "data:"))] == []
    assert browser.messages == []


def test_what_a_script_of_the_data_would_do_is_forbidden(browser: Browser, page: Any) -> None:
    page.evaluate("{const s = document.createElement('script'); s.textContent = 'owned = 1';"
                  "document.body.append(s);}")  # fmt: skip
    assert page.evaluate("window.owned") is None
    reached = "fetch('http://127.0.0.1:9/').then(() => true, () => false)"
    assert page.evaluate(reached) is False
    assert any("Content Security Policy" in message for message in browser.messages)


def test_twenty_thousand_cases_are_shown_page_by_page(browser: Browser, tmp_path: Path) -> None:
    cases = [case(f"c{number:05d}", facts=CaseFacts(f"n {number}")) for number in range(20_000)]
    page = opened(browser, run_of(*cases), tmp_path)
    assert page.evaluate(SHOWN) == "20,000 cases"
    assert page.evaluate("document.querySelectorAll('#table tbody tr').length") == 100
    page.evaluate("document.querySelector('#pages button:last-child').click()")
    assert page.evaluate(ROWS)[0] == "c00100"
    fill(page, "text", "n 19999")
    shows(page, "1 of 20,000 cases")
    assert page.evaluate(ROWS) == ["c19999"]


def test_variants_with_long_names_stand_side_by_side(browser: Browser, tmp_path: Path) -> None:
    names = [f"a-name-as-people-write-it-for-a-prompt-of-theirs-{number}" for number in range(6)]
    run = run_of(*(case("a", variant=name) for name in names))
    page = opened(browser, run, tmp_path)
    box = "document.getElementById('table').parentElement"
    assert page.evaluate("innerWidth") >= 780
    assert page.evaluate(f"{box}.scrollWidth - {box}.clientWidth") <= 0


@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "screen"])
def test_no_head_of_a_figure_is_broken_within_the_word(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    reason = "no match of 'https://track\\.fernhill\\.example/FH-\\d{5}'; " * 3
    facts = CaseFacts("I bought a hose reel last week and never opened it. Can I send it back?")
    failed = item("failed", assertions=[assertion("a", "failed", message=reason)])
    page = opened(browser, run_of(case("a", failed, facts=facts)), tmp_path)
    page.set_viewport_size({"width": width, "height": 900})
    heads = "[...document.querySelectorAll('#table thead th.n button')]"
    lines = "b.offsetHeight / parseFloat(getComputedStyle(b).fontSize)"
    assert page.evaluate("innerWidth") == width
    assert page.evaluate(f"{heads}.map(b => b.textContent)") == ["Score", "Latency"]
    assert page.evaluate(f"{heads}.filter(b => {lines} > 2).length") == 0
