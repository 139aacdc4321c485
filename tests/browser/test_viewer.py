"""The viewer in a real browser: every page, widths, colours, keys; nothing foreign is executed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from fastapi import FastAPI

from evalcore import define_suite, run_suite, variant
from evalcore.annotations.labels import LabelBook
from evalcore.storage.address import open_store
from evalcore.storage.layout import suite_key
from evalcore.viewer.app import create_viewer
from evalcore.viewer.site import Site
from evalcore.viewer.views.opened import open_tables
from tests.browser.opened_pages import (
    Browser,
    find_chromium,
    opened_browser,
    served,
    violations,
)
from tests.support.canary import FORMS, Canary, canary_server
from tests.support.hostile_store import HostileStore, hostile_store
from tests.support.live_run import execute, finish, planned_run
from tests.support.service import service_application

pytestmark = [
    pytest.mark.browser,
    pytest.mark.multiprocess,
    pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium or Chrome here"),
    pytest.mark.xdist_group("viewer-browser"),
]

# Rules of axe: all, those of colours, none where only the width is new.
LOOKS: tuple[tuple[int, Literal["light", "dark"], tuple[str, ...] | None], ...] = (
    (360, "light", None),
    (1_400, "dark", ("color-contrast",)),
    (2_560, "light", ()),
)
# No page has these of its own.
FOREIGN = (
    *("iframe", "base", "meta[http-equiv]", "main script", "main style", "main link"),
    *("img:not([src^='/'])", "[onerror]", "[onload]", "[onfocus]", "[onmouseover]"),
)
FOCUSED = "document.activeElement.textContent.trim()"


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    with canary_server() as canary:
        yield canary


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, canary: Canary) -> HostileStore:
    return hostile_store(tmp_path_factory.mktemp("viewer"), canary)


@pytest.fixture(scope="module")
def opened(store: HostileStore) -> Iterator[Browser]:
    with (
        served(create_viewer(Site(open_store(str(store.folder))))) as origin,
        opened_browser(origin) as browser,
    ):
        yield browser


@pytest.fixture
def browser(opened: Browser) -> Browser:
    opened.page.set_viewport_size({"width": 1_400, "height": 900})
    opened.page.emulate_media(color_scheme="light")
    opened.page.context.clear_cookies()
    opened.messages.clear()
    opened.requests.clear()
    return opened


def paths(store: HostileStore) -> dict[str, str]:
    """Return the path of every page by its name."""
    before, after = store.runs
    case = quote(store.cases[3], safe="")
    dataset = quote(quote(store.dataset, safe=""), safe="")
    suite = quote(suite_key(store.suite), safe="")
    return {
        "suites": "/",
        "suite": f"/suites/{suite}",
        "run": f"/runs/{after}",
        "run filtered to nothing": f"/runs/{after}?q=zzz",
        "run's assertions": f"/runs/{after}/assertions",
        "case": f"/runs/{after}/cases/{case}",
        "one item": f"/runs/{after}/cases/{case}?variant=default&iteration=0",
        "choose what to compare": f"/compare?a={before}",
        "compare": f"/compare?a={before}&b={after}",
        "awaiting": "/annotate",
        "whose labels": f"/annotate/{after}?name=change",
        "queue": f"/annotate/{after}",
        "datasets": "/datasets",
        "dataset": f"/datasets/{dataset}",
        "version": f"/datasets/{dataset}/2?since=1",
        "capture": f"/datasets/{dataset}/captures/{store.capture}",
    }


def sign_as(browser: Browser, annotator: str) -> None:
    cookie = {"name": "evalcore-annotator", "value": quote(annotator, safe=""),
              "url": browser.origin}  # fmt: skip
    browser.page.context.add_cookies([cookie])


def test_every_page_is_accessible_fits_every_width_and_executes_nothing_foreign(
    browser: Browser, store: HostileStore, canary: Canary
) -> None:
    assert canary.attempts >= 60
    sign_as(browser, "ann")
    mistakes: list[str] = []
    for name, path in paths(store).items():
        browser.open(path)
        assert browser.page.title().endswith("evalcore"), name
        browser.page.evaluate(browser.axe)
        for width, scheme, rules in LOOKS:
            browser.page.emulate_media(color_scheme=scheme)
            browser.page.set_viewport_size({"width": width, "height": 900})
            at = f"{name} at {width} {scheme}: "
            wide = browser.page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                mistakes.append(f"{at}is {wide} wide")
            if rules != ():
                mistakes += [at + each for each in violations(browser, rules)]
        for element in FOREIGN:
            if browser.page.query_selector(element) is not None:
                mistakes.append(f"{name} has {element}")
        if browser.page.evaluate("window.owned") is not None:
            mistakes.append(f"{name} executed a foreign script")
    assert not mistakes, "\n".join(mistakes)
    assert browser.messages == []
    assert [url for url in browser.requests if not url.startswith((browser.origin, "data:"))] == []
    assert canary.heard == []
    # The same texts as markup of a page do ask the server.
    browser.page.goto(f"{canary.address}/control")
    browser.page.set_content(canary.attempt("executed") + FORMS[2].format(url="/executed"))
    assert "/executed" in canary.heard
    canary.heard.clear()


def test_keys_lead_from_the_suites_to_a_case_and_back(
    browser: Browser, store: HostileStore
) -> None:
    browser.open("/")
    browser.press("j")
    browser.go("Enter")
    assert browser.path.startswith("/suites/")
    browser.press("j")
    assert browser.page.evaluate(FOCUSED) == store.runs[1]
    browser.press("j")
    assert browser.page.evaluate(FOCUSED) == store.runs[0]
    browser.press("k")
    browser.go("Enter")
    assert browser.path == f"/runs/{store.runs[1]}"

    browser.press("/")
    browser.page.keyboard.type("zzz")
    browser.go("Enter")
    assert "No case is like that" in browser.text
    browser.go("u")
    browser.open(f"/runs/{store.runs[1]}?order=plan")
    browser.press("j")
    browser.go("Enter")
    first = browser.path
    browser.go("n")
    assert browser.path != first
    browser.go("p")
    assert browser.path == first
    browser.go("u")
    assert browser.path == f"/runs/{store.runs[1]}"
    assert browser.messages == []


def test_the_list_of_keys_opens_and_closes_by_key(browser: Browser) -> None:
    browser.open("/")
    browser.press("?")
    assert "next and previous row" in browser.page.inner_text("dialog[open]")
    browser.press("j", "Escape")
    assert browser.page.query_selector("dialog[open]") is None
    browser.press("Tab")
    assert browser.page.evaluate("document.activeElement !== document.body")


def test_a_page_that_cannot_be_shown_is_accessible_and_leads_back(browser: Browser) -> None:
    browser.open("/datasets/x?offset=<script>owned=1</script>")
    assert "offset='<script>owned=1</script>'" in browser.text
    browser.page.evaluate(browser.axe)
    assert violations(browser, None) == []
    browser.page.focus("main a")
    browser.go("Enter")
    assert browser.path == "/"


def test_a_queue_is_answered_by_keys_alone(browser: Browser, store: HostileStore) -> None:
    browser.open("/annotate")
    browser.press("j")
    browser.go("Enter")
    browser.page.focus("#annotator")
    browser.page.keyboard.type("Bo")
    browser.go("Enter")
    assert "0 of 4 complete" in browser.text
    first = browser.page.input_value("input[name=task]")

    browser.go("s")
    assert browser.page.input_value("input[name=task]") != first
    second = browser.page.input_value("input[name=task]")
    browser.press("c")
    browser.page.keyboard.type("1 it is")
    browser.press("Escape")
    browser.go("3")
    assert browser.page.input_value("input[name=task]") != second
    browser.go("z")
    assert browser.page.input_value("input[name=task]") == second
    # The comment went with the label.
    assert browser.page.input_value("#comment") == ""

    for _ in range(4):
        browser.go("m")
    assert "You have answered everything" in browser.text
    browser.page.evaluate(browser.axe)
    assert violations(browser, None) == []
    book = LabelBook(open_store(str(store.folder)), store.suite)
    book.refresh()
    labels = [
        (record.number, record.label, record.comment)
        for content in book.contents
        for record in book.content_records(content)
        if record.annotator == "Bo"
    ]
    assert sorted(labels, key=str) == [
        (1, "maybe", "1 it is"),
        *[(1, "maybe", None)] * 3,
        (2, None, None),
        (3, "maybe", None),
    ]
    assert browser.messages == []


def test_a_queue_works_without_script(opened: Browser, store: HostileStore) -> None:
    context = opened.page.context.browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{opened.origin}/annotate/{store.runs[1]}")
        page.fill("#annotator", "Cy")
        page.click("text=Begin")
        before = page.input_value("input[name=task]")
        page.fill("#comment", "fine")
        page.click("button[value=maybe]")
        assert page.input_value("input[name=task]") != before
        page.click("button[name=undo]")
        assert page.input_value("input[name=task]") == before
    finally:
        context.close()


def test_a_capture_becomes_a_case_by_keys_alone(browser: Browser, store: HostileStore) -> None:
    browser.open(paths(store)["dataset"])
    browser.page.focus(f"a[href$='{store.capture}']")
    browser.go("Enter")
    browser.page.focus("#assertions")
    browser.page.keyboard.type("- {type: contians}")
    browser.press("Tab", "Tab", "Tab", "Tab")
    browser.go("Enter")
    assert "unknown assertion 'contians'" in browser.text
    browser.page.fill("#assertions", "- {type: contains, value: x}")
    browser.page.focus("button[value=accept]")
    browser.go("Enter")
    assert f"{store.dataset}@3" in browser.text


def test_a_form_of_another_origin_labels_nothing(
    browser: Browser, store: HostileStore, canary: Canary
) -> None:
    sign_as(browser, "ann")
    browser.page.goto(f"{canary.address}/page")
    browser.page.set_content(
        f"<form method=post action='{browser.origin}/annotate/{store.runs[1]}'>"
        "<input name=annotator value=ann><input name=undo value=1><button>x</button></form>"
    )
    browser.page.click("button")
    assert "not sent from a page of this site" in browser.text


@contextmanager
def fresh_page(opened: Browser, application: FastAPI) -> Iterator[Browser]:
    """Give a page of its own context on a server of an application."""
    with served(application) as origin:
        context = opened.page.context.browser.new_context()
        context.set_default_timeout(60_000)
        shown = Browser(context.new_page(), origin, opened.axe)
        shown.page.on("pageerror", lambda error: shown.messages.append(str(error)))
        try:
            yield shown
        finally:
            context.close()


def test_a_run_that_goes_on_is_followed_to_its_decision(opened: Browser, tmp_path: Path) -> None:
    # The browser's event loop runs in this thread.
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(planned_run, tmp_path).result()
        pool.submit(execute, run, 0).result()
        viewer = create_viewer(Site(open_store(str(tmp_path / "store"))))
        with fresh_page(opened, viewer) as browser:
            browser.open(f"/runs/{run.run_id}")
            assert "1 of 4 items have ended" in browser.text
            browser.page.evaluate(browser.axe)
            assert violations(browser) == []
            pool.submit(execute, run, 1, 2, 3).result()
            browser.page.wait_for_selector("text=4 of 4 items have ended: 4 passed")
            pool.submit(finish, run).result()
            browser.page.wait_for_selector("#live", state="detached")
            assert "pass_rate" in browser.text
            assert browser.messages == []


def test_a_trend_has_room_for_long_names_of_variants(opened: Browser, tmp_path: Path) -> None:
    case = {"id": "a", "input": "x", "assertions": [{"type": "contains", "value": "x"}]}
    variants = [variant("short"), variant("a-name-as-people-write-it-" + "x" * 14)]
    suite = define_suite("named", lambda text: text, [case], variants)
    store = open_store(str(tmp_path / "store"))
    for _ in range(2):
        run_suite(suite, store=store)
    with fresh_page(opened, create_viewer(Site(store))) as browser:
        for width in (500, 1_280):
            browser.page.set_viewport_size({"width": width, "height": 900})
            browser.open("/suites/named")
            browser.page.wait_for_selector("figure.trend canvas")
            figure, chart = (
                browser.page.locator(f"figure.trend{inner}").first.bounding_box()
                for inner in ("", " canvas")
            )
            assert chart["x"] + chart["width"] <= figure["x"] + figure["width"] + 1


def test_a_large_run_appears_by_itself_once_it_is_open(
    opened: Browser, store: HostileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open, viewer = threading.Event(), create_viewer(Site(open_store(str(store.folder))))
    monkeypatch.setattr("evalcore.viewer.views.opened.LARGE_ITEMS", 0)
    monkeypatch.setattr(
        "evalcore.viewer.views.opened.open_tables",
        lambda *run: may_open.wait(120) and open_tables(*run),
    )
    with fresh_page(opened, viewer) as browser:
        browser.open(f"/runs/{store.runs[1]}?order=plan#cases")
        browser.page.wait_for_selector("text=is being opened")
        may_open.set()
        browser.page.wait_for_selector("#rows")
        assert browser.path == f"/runs/{store.runs[1]}?order=plan"


def test_signing_in_and_out_of_the_service_by_keys_alone(opened: Browser, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/evalcore.db"
    starting = service_application(tmp_path, database, workers=0, with_token=True)
    with ThreadPoolExecutor(1) as pool:
        service, token = pool.submit(asyncio.run, starting).result()
    with fresh_page(opened, service) as browser:
        browser.open("/ui/datasets")
        assert browser.path == "/ui/sign-in?after=%2Fui%2Fdatasets"
        browser.page.focus("#token")
        browser.page.keyboard.type("evc_wrong")
        browser.go("Enter")
        browser.page.evaluate(browser.axe)
        assert violations(browser) == []
        assert browser.page.get_attribute("#token", "aria-describedby") == "wrong"
        browser.page.focus("#token")
        browser.page.keyboard.type(token)
        browser.go("Enter")
        assert browser.path == "/ui/datasets"
        browser.page.focus("text=Sign out")
        browser.go("Enter")
        browser.open("/ui/")
        assert browser.path.startswith("/ui/sign-in")
        assert browser.messages == []


def test_an_output_is_saved_as_plain_text_and_never_shown_as_a_page(
    browser: Browser, store: HostileStore
) -> None:
    answer = browser.page.request.get(f"{browser.origin}/runs/{store.runs[1]}/items/0/output")
    assert "window.owned" in answer.text() or "http" in answer.text()
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith("attachment")
