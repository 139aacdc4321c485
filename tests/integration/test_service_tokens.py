"""Tokens of the service: refusals without one, secrets, rates."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.support.service import EVALCORE, Service, service, token_of

pytestmark = [
    pytest.mark.extended,
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.xdist_group("service"),
]
EVALS = "/v1/workflows/evals"
EXISTS = {"kind": "exists"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("tokens")
    with service(folder, "--rate", "0", token=token_of(folder)) as running:
        workflow = running.register()
        running.save(workflow, EXISTS)
        running.run(workflow)
        yield running


def test_without_a_token_nothing_of_a_request_is_read(served: Service) -> None:
    for token in (None, "evc_x_y", "Basic x", "evc_" + "a" * 22 + "_" + "b" * 43):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        for path, content in ((EVALS, b"{"), ("/v1/files", b"x"), (EVALS, b"a" * 11_000_000)):
            answer = httpx.post(f"{served.url}{path}", content=content, headers=headers, timeout=60)
            assert answer.status_code == 401, answer.text
            assert answer.headers["www-authenticate"] == "Bearer"
            assert token is None or token not in answer.text


def test_no_token_stands_in_the_log_or_in_the_database(served: Service) -> None:
    folder = served.folder
    written = [path for path in folder.rglob("*") if path.is_file()]
    secret = str(served.token).split("_", 2)[2].encode()
    assert not [path for path in written if secret in path.read_bytes()]


def test_too_many_requests_are_told_when_to_come_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("rate")
    with service(folder, "--rate", "0.5", token=token_of(folder)) as limited:
        answers = [limited.client.get("/v1/workflows") for _ in range(4)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)


def test_a_service_without_tokens_is_refused_elsewhere(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    ended = subprocess.run(
        [EVALCORE, "serve", "--insecure", "--host", "0.0.0.0", "--port", "0"],
        cwd=tmp_path_factory.mktemp("insecure"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "loopback" in ended.stderr
