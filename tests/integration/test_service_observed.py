"""What the service tells of its requests: metrics, log lines, the number of its statements."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from tests.support.processes import until
from tests.support.service import Service, service, token_of

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.xdist_group("service")]
DOUBLED = {"kind": "equals", "expected": 42}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("observed")
    with service(folder, "--rate", "0", token=token_of(folder)) as running:
        yield running


def lines(served: Service) -> list[dict[str, object]]:
    return [
        orjson.loads(line)
        for line in (served.folder / "service.log").read_bytes().split(b"\n")[:-1]
    ]


def line_of(served: Service, request_id: str) -> dict[str, object]:
    """Return the line of a request, which is written after its answer was sent."""
    (line,) = until(
        lambda: [line for line in lines(served) if line.get("request_id") == request_id]
    )
    return line


def test_a_request_is_a_line_of_the_log(served: Service) -> None:
    workflow = served.register()
    answer = served.client.get(f"/v1/workflows/{workflow}", headers={"X-Request-ID": "seen-1"})
    assert answer.headers["x-request-id"] == "seen-1"
    line = line_of(served, "seen-1")
    assert line.pop("time")
    assert isinstance(line.pop("ms"), float)
    assert str(line.pop("token")).startswith("tok_")
    assert line == {
        "level": "info",
        "event": "request.ended",
        "method": "GET",
        "route": "/v1/workflows/{workflow_id}",
        "status": 200,
        "request_id": "seen-1",
    }


@pytest.mark.parametrize("sent", ["", "two words", "x" * 129, 'quo"te'])
def test_an_id_that_is_no_plain_word_is_replaced(served: Service, sent: str) -> None:
    answer = served.client.get("/healthz", headers={"X-Request-ID": sent})
    assert len(answer.headers["x-request-id"]) == 32


def test_a_log_has_neither_tokens_nor_raw_paths(served: Service) -> None:
    assert served.token is not None
    for path in ("/v1/workflows/secret-name?key=secret-value", "/no/such/secret-path"):
        answer = served.client.get(path)
        line_of(served, answer.headers["x-request-id"])
    text = (served.folder / "service.log").read_text()
    secrets = [
        served.token,
        served.token.split("_", 2)[2],
        "secret-name",
        "secret-value",
        "secret-path",
    ]
    assert [secret for secret in secrets if secret in text] == []


def test_requests_and_results_are_counted(served: Service) -> None:
    workflow = served.register()
    served.save(workflow, DOUBLED)
    served.save(workflow, {"kind": "equals", "expected": 1})
    served.save(workflow, DOUBLED, amount="broken")
    served.run(workflow)
    served.client.get("/no/such/path")
    text = served.client.get("/metrics").text
    for line in (
        'evalcore_http_requests_total{method="POST",route="/v1/workflows/evals",status="201"} 3.0',
        'evalcore_http_requests_total{method="GET",route="unmatched",status="404"}',
        'evalcore_http_request_seconds_count{method="POST",route="/v1/workflows/evals"} 3.0',
        'evalcore_eval_results_total{status="completed",verdict="passed"} 1.0',
        'evalcore_eval_results_total{status="completed",verdict="failed"} 1.0',
        'evalcore_eval_results_total{status="error",verdict="none"} 1.0',
        "evalcore_open_eval_runs 0.0",
    ):
        assert line in text
    assert workflow not in text
