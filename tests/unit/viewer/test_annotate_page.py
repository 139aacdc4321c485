"""The annotation queue in the browser: blind, stable, nothing lost, nothing doubled."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from evalcore.annotations.labels import LabelBook
from evalcore.model.annotation import AnswerForm
from evalcore.storage.address import open_store
from evalcore.viewer.queues import answer_choices
from tests.support.shell import evalcore
from tests.support.viewer import own_page, run_suite, viewer

KIND = {
    "type": "human", "name": "kind", "question": "Is it kind?", "labels": ["yes", "no"],
    "expected": "yes",
}  # fmt: skip


def suite(count: int, **more: Any) -> dict[str, Any]:
    return {
        "name": "kindness",
        "tests": [
            {
                "id": f"secret-id-{number}",
                "input": f"Question {number}",
                "fixtures": {"output": f"Answer {number}"},
                "assertions": [{**KIND, **more}],
            }
            for number in range(count)
        ],
    }


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with viewer(tmp_path / "store") as client:
        own_page(client)
        client.cookies.set("evalcore-annotator", "ann")
        yield client


def task_of(page: httpx2.Response) -> str:
    match = re.search(r'name="task" value="([0-9a-f]{64})"', page.text)
    assert match, page.text
    return match[1]


def post(client: TestClient, run: str, annotator: str = "ann", **fields: str) -> httpx2.Response:
    data = {"annotator": annotator, **fields}
    return client.post(f"/annotate/{run}", data=data, follow_redirects=False)


def until(client: TestClient, path: str, text: str) -> httpx2.Response:
    """Return a page as soon as it has the text."""
    end = time.monotonic() + 60
    while text not in (page := client.get(path)).text:
        assert time.monotonic() < end, page.text
        time.sleep(0.1)
    return page


def stored(folder: Path) -> list[tuple[str, Any, str | None]]:
    """Return all labels as (annotator, label, comment), in the order of their keys."""
    book = LabelBook(open_store(str(folder / "store")), "kindness")
    book.refresh()
    return [
        (record.annotator, record.label, record.comment)
        for content in sorted(book.contents)
        for record in book.content_records(content)
    ]


def test_a_browser_without_a_name_is_asked_for_one_and_labels_under_it(
    client: TestClient, tmp_path: Path
) -> None:
    run = run_suite(tmp_path, suite(1))
    client.cookies.clear()
    assert "Whose labels are they?" in client.get(f"/annotate/{run}").text

    named = client.post("/annotate", data={"annotator": "Zoë B.", "run": run})
    assert "Is it kind?" in named.text
    assert "httponly" in named.history[0].headers["set-cookie"].lower()
    post(client, run, "Zoë B.", task=task_of(named), label="yes")
    assert stored(tmp_path) == [("Zoë B.", "yes", None)]


def test_a_screen_says_nothing_of_case_variant_and_other_answers(
    client: TestClient, tmp_path: Path
) -> None:
    run = run_suite(tmp_path, suite(1, annotators=2))
    task = task_of(client.get(f"/annotate/{run}"))
    post(client, run, task=task, label="no", comment="secret-reason")

    client.cookies.set("evalcore-annotator", "bo")
    text = client.get(f"/annotate/{run}").text
    assert "Question 0" in text
    assert "Answer 0" in text
    for secret in ("secret", "ann<", "default"):
        assert secret not in text


def test_each_annotator_has_an_order_of_their_own_that_stays(
    client: TestClient, tmp_path: Path
) -> None:
    run = run_suite(tmp_path, suite(12, annotators=2))

    def answered_order(annotator: str) -> list[str]:
        client.cookies.set("evalcore-annotator", annotator)
        tasks = []
        for _ in range(12):
            task = task_of(client.get(f"/annotate/{run}"))
            assert task == task_of(client.get(f"/annotate/{run}"))
            tasks.append(task)
            post(client, run, annotator, task=task, label="yes")
        return tasks

    first, second = answered_order("ann"), answered_order("bo")
    assert sorted(first) == sorted(second)
    assert first != second


def test_a_form_that_is_sent_twice_stores_its_label_once(
    client: TestClient, tmp_path: Path
) -> None:
    run = run_suite(tmp_path, suite(2))
    task = task_of(client.get(f"/annotate/{run}"))
    for _ in range(2):
        assert post(client, run, task=task, label="yes", comment="kind").status_code == 303
    assert stored(tmp_path) == [("ann", "yes", "kind")]


def test_an_answer_to_an_old_page_replaces_the_annotators_own(
    client: TestClient, tmp_path: Path
) -> None:
    run = run_suite(tmp_path, suite(2))
    task = task_of(client.get(f"/annotate/{run}"))
    post(client, run, task=task, label="yes")
    post(client, run, task=task, label="no")
    assert [label for _, label, _ in stored(tmp_path)] == ["yes", "no"]
    page = client.get(f"/annotate/{run}?task={task}")
    assert "Your answer: <strong>no</strong>" in page.text
    assert "1 of 2 complete" in page.text


def test_undo_takes_back_the_last_answer_and_shows_its_item_again(
    client: TestClient, tmp_path: Path
) -> None:
    run = run_suite(tmp_path, suite(3))
    task = task_of(client.get(f"/annotate/{run}"))
    post(client, run, task=task, label="yes")
    undone = client.post(f"/annotate/{run}", data={"annotator": "ann", "undo": "1"})
    assert task_of(undone) == task
    assert "0 of 3 complete" in undone.text


def test_a_skipped_item_comes_last(client: TestClient, tmp_path: Path) -> None:
    run = run_suite(tmp_path, suite(3))
    skipped = task_of(client.get(f"/annotate/{run}"))
    post(client, run, task=skipped, skip="1")
    order = []
    for _ in range(3):
        order.append(task_of(client.get(f"/annotate/{run}")))
        post(client, run, task=order[-1], label="yes")
    assert order[-1] == skipped


def test_only_a_page_of_this_site_can_label(client: TestClient, tmp_path: Path) -> None:
    run = run_suite(tmp_path, suite(1))
    task = task_of(client.get(f"/annotate/{run}"))
    client.headers.pop("origin")

    def label(**headers: str) -> int:
        answered = client.post(
            f"/annotate/{run}",
            content=f"annotator=ann&task={task}&label=yes",
            headers={
                "content-type": "application/x-www-form-urlencoded",
                **{name.replace("_", "-"): text for name, text in headers.items()},
            },
            follow_redirects=False,
        )
        return answered.status_code

    for origin in ("http://evil.example", "null", "http://127.0.0.1:9"):
        assert label(origin=origin) == 403
    for site in ("cross-site", "none"):
        assert label(sec_fetch_site=site) == 403
    assert label(sec_fetch_site="same-site", origin="http://127.0.0.1") == 403
    assert label() == 403
    assert label(content_type="text/plain", origin="http://127.0.0.1") == 422
    assert stored(tmp_path) == []
    assert label(origin="http://127.0.0.1") == 303
    assert label(sec_fetch_site="same-origin", origin="null") == 303
    assert len(stored(tmp_path)) == 1


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"label": "maybe"}, 400, "is not one of yes, no"),
        ({"label": "yes", "task": "0" * 64}, 400, "asks nothing about"),
        ({"label": "yes", "annotator": " "}, 400, "cannot be the name"),
        ({"label": "yes", "comment": "x" * 10_001}, 400, "10,001 characters"),
    ],
    ids=["no such label", "no such task", "no annotator", "comment too long"],
)
def test_what_cannot_be_stored_gets_one_message(
    client: TestClient, tmp_path: Path, fields: dict[str, str], status: int, message: str
) -> None:
    run = run_suite(tmp_path, suite(1))
    task = task_of(client.get(f"/annotate/{run}"))
    answered = client.post(f"/annotate/{run}", data={"annotator": "ann", "task": task, **fields})
    assert answered.status_code == status
    assert message in answered.text
    assert stored(tmp_path) == []


def test_with_the_last_label_the_run_is_decided_again_in_the_background(
    client: TestClient, tmp_path: Path
) -> None:
    run = run_suite(tmp_path, suite(1))
    # Lists are at most a second old.
    assert f'1 label is missing: <a href="/annotate/{run}">' in client.get(f"/runs/{run}").text
    listed = until(client, "/annotate", run).text
    assert "0 of 1" in listed
    assert client.post(f"/annotate/{run}/decide", data={"annotator": "ann"}).status_code == 409

    post(client, run, task=task_of(client.get(f"/annotate/{run}")), label="yes")
    assert "Decide again" in client.get(f"/annotate/{run}").text
    assert (
        "being decided again"
        in client.post(f"/annotate/{run}/decide", data={"annotator": "ann"}).text
    )
    page = until(client, f"/annotate/{run}", "Decided again:")
    decided = re.search(r'href="/runs/([^"]+)">run ', page.text)
    assert decided
    assert '<span class="badge pass">' in client.get(f"/runs/{decided[1]}").text
    assert "No run awaits labels" in client.get("/annotate").text


def test_a_run_that_cannot_be_decided_again_says_why(client: TestClient, tmp_path: Path) -> None:
    run = run_suite(tmp_path, suite(1))
    post(client, run, task=task_of(client.get(f"/annotate/{run}")), label="yes")
    (tmp_path / "suite.yaml").unlink()
    client.post(f"/annotate/{run}/decide", data={"annotator": "ann"})
    page = until(client, f"/annotate/{run}", "could not be decided again")
    assert "suite.yaml" in page.text


def test_a_label_of_a_page_from_before_a_regrade_counts_in_the_new_run(
    client: TestClient, tmp_path: Path
) -> None:
    run = run_suite(tmp_path, suite(2))
    task = task_of(client.get(f"/annotate/{run}"))
    regraded = evalcore("regrade", run, "--json", store=tmp_path / "store", cwd=tmp_path)
    assert post(client, run, task=task, label="yes").status_code == 303
    page = client.get(f"/annotate/{regraded.report['run']['id']}")
    assert "1 of 2 complete" in page.text
    assert task_of(page) != task


def test_a_run_without_questions_says_so(client: TestClient, tmp_path: Path) -> None:
    document = suite(1)
    document["tests"][0]["assertions"] = [{"type": "contains", "value": "Answer"}]
    run = run_suite(tmp_path, document)
    assert "asks people nothing" in client.get(f"/annotate/{run}").text
    assert client.get("/annotate/20260101T000000Z-000000").status_code == 404


@pytest.mark.parametrize(
    ("form", "keys"),
    [
        (AnswerForm(labels=("yes", "no")), ["1y", "2n"]),
        (AnswerForm(labels=("good", "great", "skip")), ["1", "2", "3"]),
        (AnswerForm(scale=(0, 3)), ["0", "1", "2", "3"]),
        (AnswerForm(labels=tuple("abdefghilmn")),
         ["1a", "2b", "3d", "4e", "5f", "6g", "7h", "8i", "9l", "m", "n"]),
    ],
    ids=["letters", "letters that two answers or the page have", "scale", "more than nine"],
)  # fmt: skip
def test_answers_have_a_digit_and_a_letter_where_it_is_unique(
    form: AnswerForm, keys: list[str]
) -> None:
    assert ["".join(choice.keys) for choice in answer_choices(form)] == keys
