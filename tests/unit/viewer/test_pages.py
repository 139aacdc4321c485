"""Pages of the viewer: what they show, how they filter and page, what they say when it is amiss."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from starlette.testclient import TestClient

from evalcore.report.escape import visible
from tests.support.viewer import run_suite, viewer


def suite(answers: dict[str, str]) -> dict[str, Any]:
    return {
        "name": "greetings",
        "assertions": [{"name": "says-hello", "type": "contains", "value": "hello"}],
        "tests": [
            {
                "id": name,
                "input": f"Greet {name}",
                "expected_output": "hello",
                "fixtures": {"output": answer},
                "tags": ["short" if len(answer) < 12 else "long"],
            }
            for name, answer in answers.items()
        ],
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("viewer")
    answers = {f"case-{number:03}": "hello there" for number in range(150)}
    answers["rude"] = "<script>alert(1)</script> go away & stay away"
    return folder / "store", run_suite(folder, suite(answers))


@pytest.fixture(scope="module")
def client(store: tuple[Path, str]) -> Iterator[TestClient]:
    with viewer(store[0]) as client:
        yield client


def test_the_first_page_lists_each_suite_with_its_last_decision(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "greetings" in page.text
    assert '<span class="badge fail">' in page.text


def test_a_run_shows_gates_and_failed_cases_first(
    client: TestClient, store: tuple[Path, str]
) -> None:
    text = client.get(f"/runs/{store[1]}").text
    assert text.index("pass_rate") < text.index("rude") < text.index("case-000")


def test_each_case_stands_on_exactly_one_page(client: TestClient, store: tuple[Path, str]) -> None:
    address: str | None = f"/runs/{store[1]}?order=plan"
    shown: list[str] = []
    while address is not None:
        lines = client.get(address).text.splitlines()
        shown += [line.split("/cases/")[1].split('"')[0] for line in lines if "/cases/" in line]
        following = [line for line in lines if 'rel="next"' in line]
        address = following[0].split('href="')[1].split('"')[0] if following else None
        address = address and address.replace("&amp;", "&")
    assert sorted(shown) == sorted([*(f"case-{number:03}" for number in range(150)), "rude"])


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("outcome=failed", 1),
        ("outcome=passed", 150),
        ("tag=long", 1),
        ("assertion=says-hello", 1),
        ("q=CASE-01", 10),
        ("q=go+away", 1),
        ("q=greet+case-149", 1),
        ("changed=true", 0),
        ("q=nowhere", 0),
    ],
)
def test_an_address_chooses_cases(
    client: TestClient, store: tuple[Path, str], query: str, count: int
) -> None:
    text = client.get(f"/runs/{store[1]}?{query}").text
    assert f">{count} of 151<" in text


def test_texts_of_cases_are_never_markup(client: TestClient, store: tuple[Path, str]) -> None:
    page = client.get(f"/runs/{store[1]}?q=%3Cscript%3E")
    assert "<script>alert" not in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/runs/20260101T000000Z-000000", 404, "evalcore runs list"),
        ("/suites/nothing", 404, "no such page"),
        ("/nowhere", 404, "no such page"),
        ("/static/nothing.css", 404, "no such page"),
    ],
)
def test_what_is_not_there_is_said_on_a_page(
    client: TestClient, path: str, status: int, says: str
) -> None:
    page = client.get(path)
    assert (page.status_code, says in page.text) == (status, True)


@pytest.mark.parametrize("query", ["order=sideways", "after=nonsense"])
def test_a_wrong_address_says_what_would_work(
    client: TestClient, store: tuple[Path, str], query: str
) -> None:
    page = client.get(f"/runs/{store[1]}?{query}")
    assert page.status_code == 400
    assert "Traceback" not in page.text


def test_a_store_that_vanished_is_said_on_every_page_until_it_is_back(tmp_path: Path) -> None:
    run = run_suite(tmp_path, suite({"a": "hello"}))
    with viewer(tmp_path / "store") as client:
        assert client.get("/").status_code == 200
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        client.app.state.site.check._checked_until = 0.0  # type: ignore[attr-defined]
        for path in ("/", f"/runs/{run}", "/datasets", "/compare"):
            page = client.get(path)
            assert page.status_code == 503
            assert f"there is no store at {tmp_path}/store" in html.unescape(page.text)
        (tmp_path / "elsewhere").rename(tmp_path / "store")
        assert client.get(f"/runs/{run}").status_code == 200


def test_an_unexpected_fault_is_a_page_with_the_headers_of_every_page(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("key not in index")

    monkeypatch.setattr(client.app.state.site.catalogue, "suites", fail)  # type: ignore[attr-defined]
    page = client.get("/")
    assert page.status_code == 500
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "This page has a fault" in page.text
    assert "key not in index" not in page.text
    assert "key not in index" in caplog.text


def test_an_empty_store_says_how_to_begin(tmp_path: Path) -> None:
    with viewer(tmp_path) as client:
        assert "evalcore run SUITE" in client.get("/").text


def test_a_run_has_its_page_from_its_first_moment(tmp_path: Path) -> None:
    with viewer(tmp_path / "store") as client:
        assert client.get("/").status_code == 503
        run = run_suite(tmp_path, suite({"a": "hello"}))
        assert client.get(f"/runs/{run}").status_code == 200


CASE_IDS = (".", "..", "a\nb", "a/../b", "/", "100%", "?#&+", "\u202eabc", "x" * 300)


def test_each_case_id_has_a_page_that_a_browser_can_ask_for(tmp_path: Path) -> None:
    run = run_suite(tmp_path, suite(dict.fromkeys(CASE_IDS, "hello")))
    with viewer(tmp_path / "store") as client:
        lines = client.get(f"/runs/{run}?order=plan").text.split('class="open" href="')[1:]
        addresses = [html.unescape(line.split('"')[0]) for line in lines]
        titles = []
        for address in addresses:
            # The client resolves dot segments as browsers do.
            page = client.get(urljoin("http://127.0.0.1/", address))
            assert page.status_code == 200, address
            titles.append(html.unescape(page.text.split("<h1>")[1].split("</h1>")[0]))
        assert titles == [visible(case_id) for case_id in CASE_IDS]
