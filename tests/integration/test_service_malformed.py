"""Malformed requests: each is refused with a place and a reason."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

import pytest

from tests.support.malformed_answers import assert_refused, requests_to_break, sent
from tests.support.postgresql import available_postgresql
from tests.support.service import Service, service, token_of

pytestmark = [
    pytest.mark.extended,
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("service"),
]
# All of them: EVALCORE_MALFORMED=10000 (benchmarks/RESULTS.md).
COUNT = int(os.environ.get("EVALCORE_MALFORMED", "700"))
EVALS = "/v1/workflows/evals"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("malformed")
    with contextlib.ExitStack() as stack:
        database = "evalcore.db"
        if request.param == "postgresql":
            database = stack.enter_context(available_postgresql()).new_database()
        token = token_of(folder, database=database)
        arguments = ["--rate", "0", "--database", database]
        yield stack.enter_context(service(folder, *arguments, token=token))


def test_no_malformed_request_breaks_the_service(served: Service) -> None:
    requests = requests_to_break(served, seed=14)
    refused = 0
    for request in itertools.islice(requests, COUNT):
        answer = sent(served, request)
        assert_refused(answer, request)
        refused += answer.status_code >= 400
    assert refused > 0.7 * COUNT
    assert served.client.get("/readyz").status_code == 200
    assert "Traceback" not in (served.folder / "service.log").read_text("utf-8", "replace")


@pytest.mark.parametrize("path", ["/v1/workflows", EVALS, "/v1/files"])
def test_a_body_that_is_too_large_is_refused(served: Service, path: str) -> None:
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    is_file = path == "/v1/files"
    content = (head if is_file else b'{"name": "') + b"a" * 11_000_000
    headers = form if is_file else {"Content-Type": "application/json"}
    answer = served.client.post(path, content=content, headers=headers)
    assert (answer.status_code, "larger than" in answer.json()["detail"]) == (413, True)
    parts = iter([content[at : at + 1_000_000] for at in range(0, len(content), 1_000_000)])
    answer = served.client.post(path, content=parts, headers=headers)
    assert answer.status_code == 413


YAML_BODIES = [
    "blocks: {a: {type: code, code: 'def main(d): return .nan', x: .nan}}",
    "blocks: {a: {type: code, code: x, timeout: .inf}}",
    f"blocks: {{a: {{type: code, code: x, timeout: {10**30}}}}}",
    "a: &a [*a]",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nblocks: *c",
    "blocks: !!python/object:os.system {}",
    "[" * 5000,
    "? [a]\n: b",
    "blocks: {a: {type: code}, a: {type: code}}",
    "\ufeffblocks: 5",
    'blocks: {a: {type: code, code: "\\0"}}',
    "- 1",
    "%YAML 9.9\n---\na",
]


@pytest.mark.parametrize("text", YAML_BODIES, ids=range(len(YAML_BODIES)))
def test_malformed_yaml_of_a_workflow_is_refused(served: Service, text: str) -> None:
    answer = served.client.post("/v1/workflows", json={"name": "x", "definition": text})
    assert answer.status_code == 422, answer.text
    assert all(mistake["loc"][:2] == ["body", "definition"] for mistake in answer.json()["detail"])


def test_the_name_of_a_file_is_never_a_path(served: Service) -> None:
    for name in ("../../etc/passwd", "..\\..\\x.pdf", "/abs/x", "a\r\nb: c", "x" * 4000, "a\0b"):
        answer = served.client.post("/v1/files", files={"file": (name, b"bytes")})
        if answer.status_code == 201:
            shown = answer.json()["filename"]
            assert not set(shown) & set("/\\\r\n\0"), shown
            content = served.client.get(f"/v1/files/{answer.json()['id']}/content")
            assert content.content == b"bytes"
            assert ".." not in content.headers["content-disposition"].replace("%", "")
        else:
            assert answer.status_code in {400, 422}, answer.text
