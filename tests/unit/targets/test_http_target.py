"""The target `http`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evalcore.errors import TargetError
from evalcore.model.exchange import ErrorKind, ProviderError
from evalcore.model.suite import Case
from evalcore.model.target import Target
from evalcore.targets.http import HttpOptions, HttpTarget
from evalcore.targets.options import BuildContext
from tests.support.model_server import Failure, ModelServer, model_server
from tests.support.target_calls import answer, merge_options, target_of


def service(server: ModelServer, query: str = "", **options: Any) -> Target:
    return target_of("http", url=f"{server.url}/echo{query}", **options)


def seen(case: Case | str, query: str = "", **options: Any) -> dict[str, Any]:
    """Return what the service was sent."""
    with model_server() as server:
        target = service(server, query, **options)
        output = answer(target, case, environment={"EVAL_T": "token-123456"}).output
        found: dict[str, Any] = json.loads(output or "")
        return found


def test_without_a_body_it_is_a_get() -> None:
    found = seen("a b&c=ü", "?q={prompt}&id={id}")

    assert found["method"] == "GET"
    assert found["path"] == "/echo?q=a%20b%26c%3D%C3%BC&id=c1"


def test_a_body_of_json_values_is_filled_and_sent_as_json() -> None:
    body = {"say": "<{prompt}>", "all": "{input}", "n": "{input.n}", "list": ["{id}", 1, None]}
    found = seen(Case("c1", {"n": 3}), body=body)

    assert (found["method"], found["headers"]["Content-Type"]) == ("POST", "application/json")
    assert found["body"] == {"say": '<{"n": 3}>', "all": {"n": 3}, "n": 3, "list": ["c1", 1, None]}


def test_a_body_of_text_is_sent_as_it_is() -> None:
    found = seen("hi", body="say {prompt}", method="PUT", headers={"content-type": "text/csv"})

    assert (found["method"], found["body"]) == ("PUT", "say hi")
    assert found["headers"]["Content-Type"] == "text/csv"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_attached_files_are_in_the_prompt_of_a_body(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "notes.txt").write_text("xyzzy", encoding)
    content = [{"type": "file", "value": "notes.txt"}, {"type": "text", "value": "Which word?"}]
    with model_server() as server:
        target = service(server, body={"q": "{prompt}"})
        case = Case("c1", [{"role": "user", "content": content}])
        found = json.loads(answer(target, case, folder=tmp_path).output or "")
    assert found["body"] == {"q": '<file name="notes.txt">\nxyzzy\n</file>\nWhich word?'}


def test_headers_are_sent_and_a_secret_one_that_comes_back_is_redacted() -> None:
    found = seen("hi", headers={"Authorization": "Bearer ${{ EVAL_T }}", "X-Id": "{id}"})

    assert found["headers"]["Authorization"] == "[redacted]"
    assert found["headers"]["X-Id"] == "c1"


@pytest.mark.parametrize(
    ("path", "output"),
    [
        ("$.body.text", "hi"),
        ("$.body", '{"text": "hi", "more": [1, 2]}'),
        ("$.body.more[-1]", "2"),
        (None, None),
    ],
)
def test_the_answer_is_what_the_path_finds(path: str | None, output: str | None) -> None:
    with model_server() as server:
        target = service(server, body={"text": "{prompt}", "more": [1, 2]}, response_path=path)
        evidence = answer(target, "hi")

    if output is None:
        assert json.loads(evidence.output or "")["body"]["text"] == "hi"
    else:
        assert evidence.output == output
    assert evidence.metrics.latency_ms is not None
    assert evidence.details["calls"][0]["provider"] == "mine"


def test_a_path_that_finds_nothing_is_an_error_with_the_answer() -> None:
    with model_server() as server, pytest.raises(TargetError, match=r"finds nothing.*POST"):
        answer(service(server, body="x", response_path="$.nowhere"))


def test_an_answer_that_is_no_json_has_no_path() -> None:
    with (
        model_server(script=lambda _: Failure(how="invalid_json")) as server,
        pytest.raises(TargetError, match="not JSON; it begins: <html>"),
    ):
        answer(service(server, response_path="$.x"))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"a": NaN}', "null"),
        ('{"a": {"b": [1e400, 1]}}', '{"b": [null, 1]}'),
        ('{"a": "half \\ud83d"}', "half \ufffd"),
        ('\ufeff{"a": "Lima"}', "Lima"),
    ],
    ids=["NaN", "infinite", "half of a pair", "byte order mark"],
)
def test_an_answer_is_read_as_the_program_that_wrote_it_reads_it(body: str, text: str) -> None:
    options = HttpOptions(url="http://x", response_path="$.a")
    found, notes = HttpTarget(options, BuildContext("mine", Path()))._answer_in(body)

    assert found == text
    assert bool(notes) is (text != "Lima")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, ErrorKind.REQUEST), (429, ErrorKind.RATE), (500, ErrorKind.SERVER)],
)
def test_a_failing_status_is_an_error(status: int, kind: ErrorKind) -> None:
    with (
        model_server(script=lambda _: Failure(status)) as server,
        pytest.raises(ProviderError) as caught,
    ):
        answer(service(server))

    assert (caught.value.kind, caught.value.status) == (kind, status)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"url": "ftp://x"},
        {"url": "//x"},
        {"url": "http://u:p@x/"},
        {"url": "http://x", "method": "FETCH"},
        {"url": "http://x", "method": "GET", "body": "x"},
        {"url": "http://x", "response_path": "$["},
        {"url": "http://x", "timeout": 0},
        {"url": "http://x", "colour": "red"},
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        merge_options(target_of("http", **options))


@pytest.mark.parametrize("value", ["secret-host", "http://me:secret-pass@host"])
@pytest.mark.parametrize(
    ("kind", "option", "more"),
    [("http", "url", {}), ("openai", "base_url", {"model": "m"})],
    ids=["http", "openai"],
)
def test_an_address_is_checked_when_its_variable_is_known(
    kind: str, option: str, more: dict[str, str], value: str
) -> None:
    target = target_of(kind, **{option: "${{ EVAL_URL }}/echo"}, **more)
    with pytest.raises(TargetError, match=f"{option}, with its variables replaced,") as caught:
        answer(target, environment={"EVAL_URL": value})
    assert "secret" not in str(caught.value)


def test_a_variable_of_an_address_that_is_not_set_is_the_items_error() -> None:
    target = target_of("http", url="${{ EVAL_URL }}/echo")
    with pytest.raises(TargetError, match="url: the environment variable EVAL_URL is not set"):
        answer(target)


def test_a_variable_may_have_the_name_of_a_placeholder(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("id=7\n")
    with model_server() as server:
        answer(target_of("http", url=server.url + "/echo?v=${{id}}&c={id}"), folder=tmp_path)
        assert [seen.path for seen in server.requests] == ["/echo?v=7&c=c1"]


def test_a_providers_key_is_not_sent_in_an_address() -> None:
    target = target_of("http", url="http://127.0.0.1:9/?k=${{ OPENAI_API_KEY }}")
    with pytest.raises(TargetError, match="may not read the environment variable OPENAI_API_KEY"):
        answer(target, environment={"OPENAI_API_KEY": "k"})
