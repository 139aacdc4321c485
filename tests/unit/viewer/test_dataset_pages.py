"""The pages of datasets: versions, differences, and captures that become cases."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from evalcore.datasets.catalogue import DatasetCatalogue
from evalcore.datasets.reference import DatasetReference
from evalcore.datasets.store import (
    DatasetChange,
    commit,
    find_version,
    lines_by_id,
    read_dataset,
    version_cases,
)
from evalcore.redaction.redactor import REDACTED
from evalcore.storage.address import open_store
from evalcore.storage.store import ObjectStore
from tests.support.pending_captures import write_captures
from tests.support.viewer import own_page, viewer

QUESTIONS = {
    "Where is my order 17?": "On its way to ann@example.org.",
    "Where is my order 23?": "Delivered.",
    "How do I cancel the subscription of my company?": "Under Settings.",
}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def client(store: ObjectStore, tmp_path: Path) -> Iterator[TestClient]:
    with viewer(tmp_path / "store") as client:
        own_page(client)
        yield client


def captures_of(store: ObjectStore, name: str = "support") -> dict[str, str]:
    """Return the ids of the pending captures by their inputs."""
    clusters = DatasetCatalogue(store).pending(name).clusters
    return {str(each.input): each.id for cluster in clusters for each in cluster.captures}


def cases_of(store: ObjectStore, version: int, name: str = "support") -> list[dict[str, Any]]:
    return list(version_cases(store, find_version(store, DatasetReference(name, version))))


def capture_page(client: TestClient, store: ObjectStore, question: str) -> str:
    return f"/datasets/support/captures/{captures_of(store)[question]}"


def sent_fields(page: str) -> dict[str, str]:
    """Return what the form of a page would send unedited."""
    areas = re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>\n?(.*?)</textarea>', page, re.DOTALL)
    return {name: html.unescape(text) for name, text in areas}


def test_captures_wait_in_clusters_of_similar_text(client: TestClient, store: ObjectStore) -> None:
    write_captures(store, QUESTIONS)
    assert "support" in client.get("/datasets").text
    page = client.get("/datasets/support").text
    assert "3 in 2 clusters" in page
    assert "Cluster 1: 2 inputs" in page
    assert "No version yet" in page


def test_an_accepted_capture_becomes_a_case_as_it_was_edited(
    client: TestClient, store: ObjectStore
) -> None:
    write_captures(store, QUESTIONS)
    path = capture_page(client, store, "Where is my order 17?")
    page = client.post(
        path,
        data={
            "input": "Where is the order of Zoë?",
            "assertions": "- {type: contains, value: way}",
            "personal": "Zoë",
            "tags": "orders, delivery",
            "expectation": "reference",
            "decision": "accept",
        },
    )
    assert page.status_code == 200
    assert "support@1" in page.text
    assert "2 in 2 clusters" in page.text
    (case,) = cases_of(store, 1)
    assert case["input"] == f"Where is the order of {REDACTED}?"
    assert case["assertions"] == [{"type": "contains", "value": "way"}]
    assert case["tags"] == ["captured", "orders", "delivery"]
    assert "ann@example.org" not in case["expected_output"]
    assert client.post(path, data={"decision": "accept"}).status_code == 404
    assert len(cases_of(store, 1)) == 1


@pytest.mark.parametrize(
    "captured",
    ["\nline\r\nends \x1b[31m\u202e", {"a": ["\u202e", 1]}, "plain\n\ttext <b>&amp;</b>", [1, "x"]],
    ids=["controls", "object", "text", "list"],
)
def test_an_unedited_input_stays_as_it_was_captured(
    client: TestClient, store: ObjectStore, captured: Any
) -> None:
    from evalcore.capture import flush_captures
    from evalcore.capture.decorator import capture
    from evalcore.datasets.pending import case_input

    capture("support", input=captured, output="x", store=store)
    assert flush_captures(30)
    (identity,) = captures_of(store).values()
    path = f"/datasets/support/captures/{identity}"
    fields = sent_fields(client.get(path).text)
    sent = {name: text.replace("\n", "\r\n") for name, text in fields.items()}
    client.post(path, data={**sent, "decision": "accept"})
    assert cases_of(store, 1)[0]["input"] == case_input(captured)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"assertions": "- {type: contian, value: x}"}, "unknown assertion &#39;contian&#39;"),
        ({"assertions": "contains"}, "expected a list of assertions"),
        ({"assertions": "- {type: ["}, "assertions:"),
    ],
    ids=["unknown type", "no list", "no YAML"],
)
@pytest.mark.parametrize("decision", ["accept", "preview"])
def test_a_mistake_is_explained_and_nothing_that_was_written_is_lost(
    client: TestClient, store: ObjectStore, fields: dict[str, str], message: str, decision: str
) -> None:
    write_captures(store, QUESTIONS)
    path = capture_page(client, store, "Where is my order 17?")
    page = client.post(path, data={"input": "My text", "decision": decision, **fields})
    assert message in page.text
    assert sent_fields(page.text) == {"input": "My text", "personal": "", **fields}
    assert read_dataset(store, "support").versions == ()


def test_refused_captures_wait_no_more(client: TestClient, store: ObjectStore) -> None:
    write_captures(store, QUESTIONS)
    ids = list(captures_of(store).values())
    assert client.post("/datasets/support", data={"decision": "refuse"}).status_code == 400
    page = client.post("/datasets/support", data={"capture": ids[:2], "decision": "refuse"})
    assert "1 in 1 cluster of" in page.text
    client.post(f"/datasets/support/captures/{ids[2]}", data={"decision": "refuse"})
    assert captures_of(store) == {}


def test_several_captures_are_accepted_with_the_same_assertions(
    client: TestClient, store: ObjectStore
) -> None:
    write_captures(store, QUESTIONS)
    ids = list(captures_of(store).values())
    data = {"capture": ids, "assertions": "- {type: not-empty}", "decision": "accept"}
    refused = client.post("/datasets/support", data=data)
    assert refused.status_code == 409
    assert "unknown assertion" in refused.text
    data["assertions"] = "- {type: contains, value: e}"
    client.post("/datasets/support", data=data)
    cases = cases_of(store, 1)
    assert len(cases) == 3
    assert all(case["assertions"] == [{"type": "contains", "value": "e"}] for case in cases)


def test_versions_are_compared_and_paged(client: TestClient, store: ObjectStore) -> None:
    first = [{"id": f"case-{number:03}", "input": f"q{number}"} for number in range(120)]
    commit(store, "a&b <i>", lambda _: DatasetChange("import a", lines_by_id(first)))
    second = [{"id": "case-000", "input": "changed"}, {"id": "new", "input": "q"}]
    commit(store, "a&b <i>", lambda _: DatasetChange("import b", lines_by_id(second)))

    listed = client.get("/datasets").text
    link = re.search(r'class="open" href="([^"]+)"', listed)
    assert link
    page = client.get(link[1])
    assert "120" in page.text
    assert "<i>" not in page.text
    changes = re.search(r'href="([^"]+)">since version 1', page.text)
    assert changes
    compared = client.get(html.unescape(changes[1])).text
    for text in ("Added: 1", "Changed: 1", "<li>case-000</li>", "<li>new</li>"):
        assert text in compared
    following = re.search(r'rel="next" href="([^"]+)"', compared)
    assert following
    assert "case-060" in client.get(html.unescape(following[1])).text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/datasets/nothing", 404),
        ("/datasets/support/captures/0123", 404),
        ("/datasets/support/7", 400),
        ("/datasets/support/1?since=x", 422),
        ("/datasets/support/1?since=9", 400),
        ("/datasets/support/one", 422),
        ("/datasets/support?offset=-1", 422),
    ],
)
def test_what_does_not_exist_gets_one_message(
    client: TestClient, store: ObjectStore, path: str, status: int
) -> None:
    commit(
        store,
        "support",
        lambda _: DatasetChange("import", lines_by_id([{"id": "a", "input": "q"}])),
    )
    page = client.get(path)
    assert page.status_code == status
    assert 'class="alarm"' in page.text
