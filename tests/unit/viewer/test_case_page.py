"""The page of a case: input, outputs with differences, assertions, chosen items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient

from tests.support.viewer import run_suite, viewer

MARKUP = "<script>alert(1)</script>"
LONG = "word " * 20_000


class Viewed(NamedTuple):
    client: TestClient
    run: str
    earlier: str

    def case(self, case: str, **query: str) -> str:
        """Return the text of a case's page."""
        page = self.client.get(f"/runs/{self.run}/cases/{case}", params=query)
        assert page.status_code == 200, page.text
        return page.text


def suite(answer: str) -> dict[str, Any]:
    def case(name: str, output: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "input": f"Question {name}", "fixtures": {"output": output}, **more}

    tools = [{"id": "c1", "function": {"name": "look_up", "arguments": '{"order": 4711}'}}]
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "value": "Where is it?"}]},
        {"role": "assistant", "content": None, "tool_calls": tools},
        {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
        {"role": "user", "content": "And when?"},
    ]
    return {
        "name": "answers",
        "assertions": [
            {"name": "euros", "type": "contains", "value": "euros"},
            {"name": "some", "type": "regex", "value": "."},
        ],
        "tests": [
            case("first", f"It costs {answer} euros."),
            case("wrong", "It costs 20 dollars.", expected_output="It costs 20 euros."),
            case("markup", MARKUP, metadata={"note": MARKUP}),
            case("long", LONG),
            case("a/b c", "20 euros"),
            {**case("talk", "20 euros"), "input": conversation},
        ],
    }


@pytest.fixture(scope="module")
def viewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewed]:
    folder = tmp_path_factory.mktemp("case-page")
    earlier = run_suite(folder, suite("20"))
    run = run_suite(folder, suite("25"), "--baseline", earlier)
    with viewer(folder / "store") as client:
        yield Viewed(client, run, earlier)


def test_an_output_is_compared_with_the_baseline_runs_word_by_word(viewed: Viewed) -> None:
    text = viewed.case("first")
    assert "It costs<del> 20</del><ins> 25</ins> euros." in text


def test_an_output_is_compared_with_what_is_expected(viewed: Viewed) -> None:
    text = viewed.case("wrong", reference="expected")
    assert "<del> euros</del><ins> dollars</ins>" in text


def test_an_assertion_that_failed_says_why(viewed: Viewed) -> None:
    text = viewed.case("wrong").split("Assertions")[1]
    assert text.index('badge failed"') < text.index('badge passed"')
    assert "euros" in text


def test_a_conversation_is_shown_message_by_message(viewed: Viewed) -> None:
    text = viewed.case("talk")
    roles = [part.split('"')[0] for part in text.split('<li class="message ')[1:]]
    assert roles[:5] == ["system", "user", "assistant", "tool", "user"]
    assert "look_up" in text
    assert "4711" in text


def test_texts_of_a_case_are_never_markup(viewed: Viewed) -> None:
    text = viewed.case("markup")
    assert MARKUP not in text
    assert "&lt;script&gt;alert(1)" in text


def test_an_id_with_a_slash_has_a_page(viewed: Viewed) -> None:
    assert "<h1>a/b c</h1>" in viewed.case("a%2Fb%20c")


def test_a_large_output_is_cut_and_linked_whole(viewed: Viewed) -> None:
    text = viewed.case("long", reference="none")
    assert len(text) < 100_000
    address = text.split("more characters")[1].split('href="')[1].split('"')[0]
    whole = viewed.client.get(address)
    assert whole.text == LONG
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["content-disposition"].startswith("attachment")
    assert whole.headers["x-content-type-options"] == "nosniff"


def test_cases_lead_to_the_previous_and_the_next(viewed: Viewed) -> None:
    text = viewed.case("wrong")
    links = {rel: text.split(f'rel="{rel}" href="')[1].split('"')[0] for rel in ("prev", "next")}
    assert links["prev"].endswith("/cases/first")
    assert links["next"].endswith("/cases/markup")


def test_the_history_says_since_when_a_case_fails(viewed: Viewed) -> None:
    text = viewed.case("wrong").split('id="history-title"')[1]
    assert f'Fails since <a href="/runs/{viewed.earlier}/' in text
    assert "2 runs" in text


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("cases/nowhere", 404),
        ("cases/first?group=other", 404),
        ("cases/first?iteration=x", 422),
        ("items/999/output", 404),
        ("items/0/output?block=none", 404),
        ("planned/999/input", 404),
        ("planned/0/secret", 422),
    ],
)
def test_an_address_of_nothing_is_no_page(viewed: Viewed, address: str, status: int) -> None:
    page = viewed.client.get(f"/runs/{viewed.run}/{address}")
    assert page.status_code == status
    assert "Traceback" not in page.text


def test_variants_and_iterations_stand_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "answering.py").write_text(
        "def answer(_, *, context):\n    return f'one {context.config[\"word\"]} three'\n"
    )
    (tmp_path / "targets.yaml").write_text(
        "targets: [{name: t, provider: python, callable: 'answering:answer'}]"
    )
    document = {
        "name": "varied",
        "execution": {"target": "t"},
        "evalcore": {
            "variants": [
                {"id": "a", "config": {"word": "two"}},
                {"id": "b", "config": {"word": "2"}},
            ],
            "baseline": "a",
            "iterations": 2,
        },
        "tests": [
            {"id": "x", "input": "go", "assertions": [{"type": "contains", "value": "three"}]}
        ],
    }
    run = run_suite(tmp_path, document)
    with viewer(tmp_path / "store") as client:
        text = client.get(f"/runs/{run}/cases/x").text
        assert text.count('<article class="output"') == 4
        assert text.count("one<del> two</del><ins> 2</ins> three") == 2
        single = client.get(f"/runs/{run}/cases/x?variant=b&iteration=1").text
        assert single.count('<article class="output"') == 1
        assert 'id="trace-title"' in single
