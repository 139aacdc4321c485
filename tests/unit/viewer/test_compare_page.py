"""The page of a comparison: cases that moved, scatter of scores, differing configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient

from tests.support.viewer import run_suite, viewer


class Compared(NamedTuple):
    client: TestClient
    was: str
    now: str

    def page(self, **query: str) -> str:
        """Return the text of the comparison of both runs."""
        page = self.client.get("/compare", params={"a": self.was, "b": self.now, **query})
        assert page.status_code == 200, page.text
        return page.text


def suite(broken: range, prompt: str = "Be brief.") -> dict[str, Any]:
    def answer(number: int) -> str:
        return "no" if number in broken else "yes"

    return {
        "name": "moves",
        "assertions": [{"name": "agrees", "type": "equals", "value": "yes"}],
        "evalcore": {"variants": [{"id": "only", "config": {"system_prompt": prompt}}]},
        "tests": [
            {"id": f"case-{n:03}", "input": "?", "fixtures": {"output": answer(n)}}
            for n in range(150)
        ],
    }


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    folder = tmp_path_factory.mktemp("compare-page")
    was = run_suite(folder, suite(range(10)))
    now = run_suite(folder, suite(range(8, 20), "Be very brief."))
    with viewer(folder / "store") as client:
        yield Compared(client, was, now)


def cases_of(text: str) -> list[str]:
    return [part.split(">")[1].split("<")[0] for part in text.split('class="open" href=')[1:]]


def test_cases_that_got_worse_stand_first_then_those_that_got_better(compared: Compared) -> None:
    cases = cases_of(compared.page())
    assert cases[:10] == [f"case-{n:03}" for n in range(10, 20)]
    assert cases[10:18] == [f"case-{n:03}" for n in range(8)]


def test_each_case_stands_on_exactly_one_page(compared: Compared) -> None:
    text = compared.page()
    cases = cases_of(text)
    address = text.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
    cases += cases_of(compared.client.get(address).text)
    assert sorted(cases) == [f"case-{n:03}" for n in range(150)]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"move": "regression"}, 10),
        ({"move": "improvement"}, 8),
        ({"move": "missing"}, 0),
        ({"cell": "0,20"}, 8),
        ({"cell": "0,0"}, 2),
    ],
)
def test_an_address_chooses_cases(compared: Compared, query: dict[str, str], count: int) -> None:
    assert len(cases_of(compared.page(**query))) == count


def test_the_score_difference_has_its_interval(compared: Compared) -> None:
    text = compared.page()
    assert "-0.0133" in text
    assert "95 %: -0.0" in text


def test_the_scatter_has_a_point_for_each_pair_of_scores(compared: Compared) -> None:
    text = compared.page()
    assert text.count("<circle") == 4
    assert 'aria-label="1.00 to 0.00: 10 cases"' in text
    assert "cell=20%2C0" in text


def test_the_page_says_what_differs_in_the_configuration(compared: Compared) -> None:
    text = compared.page().split('id="settings-title"')[1]
    assert "variant.config.system_prompt" in text
    assert "Be<ins> very</ins> brief." in text


def test_a_case_links_to_its_page_on_both_sides(compared: Compared) -> None:
    text = compared.page(move="regression")
    for run in (compared.was, compared.now):
        address = f"/runs/{run}/cases/case-010"
        assert address in text
        assert compared.client.get(address).status_code == 200


def test_a_run_links_to_its_comparison_with_the_one_before(compared: Compared) -> None:
    text = compared.client.get(f"/runs/{compared.now}").text
    assert f"/compare?a={compared.was}&amp;b={compared.now}" in text


def test_variants_of_one_run_are_compared(tmp_path: Path) -> None:
    document = suite(range(0)) | {"name": "variants"}
    document["evalcore"] = {"variants": [{"id": "a"}, {"id": "b"}], "baseline": "b"}
    run = run_suite(tmp_path, document)
    with viewer(tmp_path / "store") as client:
        text = client.get(f"/compare?a={run}&b={run}").text
    assert "variant <b>b</b>" in text
    assert text.index("variant <b>b</b>") < text.index("variant <b>a</b>")


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("a=20260101T000000Z-000000&b=latest", 404, "evalcore runs list"),
        ("a=latest~onyl&b=latest", 400, "Did you mean"),
        ("a=latest&b=latest&move=up", 400, "regression"),
        ("a=latest&b=latest&cell=x", 400, "cell"),
        ("a=latest&b=latest&after=x", 400, "page ends"),
    ],
)
def test_a_wrong_address_says_what_would_work(
    compared: Compared, query: str, status: int, message: str
) -> None:
    page = compared.client.get(f"/compare?{query}")
    assert (page.status_code, message in page.text) == (status, True)
