"""The page of a suite: its trend as a picture and as a chart, its runs, flaky cases, baselines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from tests.support.shell import evalcore
from tests.support.viewer import run_suite, viewer

ANSWERS = ("hello", "good day", "hello")


def suite(answer: str) -> dict[str, Any]:
    return {
        "name": "Greetings-now",
        "assertions": [
            {"name": "says-hello", "type": "contains", "value": "hello"},
            {"name": "is-text", "type": "regex", "value": "."},
        ],
        "tests": [
            {"id": f"case-{number}", "input": "Greet", "fixtures": {"output": text}}
            for number, text in enumerate((answer, "hello", "hello"))
        ],
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("suite")
    runs = [run_suite(folder, suite(answer)) for answer in ANSWERS]
    evalcore("baseline", "set", "Greetings-now", runs[1], store=folder / "store", cwd=folder)
    return folder / "store", runs


@pytest.fixture(scope="module")
def client(runs: tuple[Path, list[str]]) -> Iterator[TestClient]:
    with viewer(runs[0]) as client:
        yield client


@pytest.fixture(scope="module")
def address(client: TestClient) -> str:
    text = client.get("/").text
    return text.split('class="open" href="')[1].split('"')[0]


def test_the_first_page_says_the_interval_and_what_changed(client: TestClient) -> None:
    text = client.get("/").text
    assert "100.0%" in text
    assert "43.9%–100.0%" in text  # Wilson's interval of 3 of 3
    assert "fail → pass" in text


@pytest.mark.parametrize("cluster", [None, "customer"])
def test_the_first_page_has_the_interval_of_the_report(tmp_path: Path, cluster: str | None) -> None:
    document = suite("no")
    for test in document["tests"]:
        test["metadata"] = {"customer": "one" if test["id"] == "case-2" else "two"}
    document["evalcore"] = {"variants": [{"id": "a"}, {"id": "b"}]}
    if cluster is not None:
        document["evalcore"]["cluster"] = cluster
    run_suite(tmp_path, document)
    (report,) = tmp_path.glob("store/runs/*/*/report.json")
    interval = orjson.loads(report.read_bytes())["summary"]["intervals"]["pass_rate"]
    with viewer(tmp_path / "store") as client:
        assert f"{interval['low']:.1%}–{interval['high']:.1%}" in client.get("/").text


def test_a_suite_shows_its_runs_trend_and_baseline(
    client: TestClient, address: str, runs: tuple[Path, list[str]]
) -> None:
    text = client.get(address).text
    assert all(f"<code>{run}</code>" in text for run in runs[1])
    assert "100.0% last, 66.7% least, 100.0% most" in text
    baselines = text.split('id="baselines"')[1]
    assert "main" in baselines
    assert runs[1][1] in baselines


@pytest.mark.parametrize(
    ("query", "listed"),
    [
        ("outcome=fail", 1),
        ("outcome=pass", 2),
        ("outcome=&mode=&since=&until=", 3),
        ("mode=live", 3),
        ("mode=replay", 0),
        ("since=2020-01-01", 3),
        ("until=2020-01-01", 0),
        ("branch=main", 0),
    ],
)
def test_an_address_chooses_runs(client: TestClient, address: str, query: str, listed: int) -> None:
    rows = client.get(f"{address}?{query}").text.split('id="rows"')[1].split("</table>")[0]
    assert rows.count('class="open"') == listed


def test_a_trend_is_a_picture_and_a_chart_of_the_same_ground(
    client: TestClient, address: str
) -> None:
    picture = client.get(f"{address}/trend.svg?metric=pass_rate")
    chart = client.get(f"{address}/trend.json?metric=pass_rate").json()
    assert picture.headers["content-type"] == "image/svg+xml"
    assert f'fill="{chart["background"]}"' in picture.text
    assert chart["title"]["subtitle"] == "pass rate over 3 runs"


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("?metric=speed", 422, "pass_rate"),
        ("?variant=nothing", 400, "the suite has"),
        ("?since=yesterday", 422, "since="),
    ],
)
def test_a_choice_that_there_is_not_is_refused(
    client: TestClient, address: str, query: str, status: int, says: str
) -> None:
    page = client.get(f"{address}{query}")
    assert (page.status_code, says in page.text) == (status, True)


def test_assertions_that_fail_come_first_and_those_that_never_do_are_named(
    client: TestClient, runs: tuple[Path, list[str]]
) -> None:
    text = client.get(f"/runs/{runs[1][1]}/assertions").text
    assert text.index("says-hello") < text.index("is-text")
    assert '<td class="n">3</td>' in text
    assert "1 of 2 never failed here" in text
