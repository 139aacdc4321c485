"""Without tokens no web page can drive the service or read from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.service_in_process import requests_to, service_context

WORKFLOWS = "/v1/workflows"
ACCEPTED = {
    "an address": {"Host": "127.0.0.1:8321"},
    "a name": {"Host": "LOCALHOST:8321"},
    "IPv6": {"Host": "[::1]:8321"},
    "a page of its own": {"Host": "localhost:8321", "Origin": "http://localhost:8321"},
}
REFUSED = {
    "a name that is rebound": {"Host": "attacker.example:8321"},
    "a rebound name and its own page": {
        "Host": "attacker.example:8321",
        "Origin": "http://attacker.example:8321",
    },
    "a name that begins like one": {"Host": "localhost.attacker.example"},
    "a page of another port": {"Host": "localhost:8321", "Origin": "http://localhost:3000"},
    "a sandboxed page": {"Host": "localhost:8321", "Origin": "null"},
    "a file": {"Host": "localhost:8321", "Origin": "file://"},
    "no host": {"Host": ""},
    "no name at all": {"Host": "[::1"},
}
PATHS = [WORKFLOWS, "/v1/files/x/content", "/openapi.json", "/docs", "/metrics", "/healthz", "/mcp"]


def statuses(folder: Path, headers: dict[str, str], paths: list[str]) -> list[int]:
    """Return the statuses of a GET of each path, and of a POST that would register a workflow."""

    async def ask() -> list[int]:
        async with (
            service_context(folder) as context,
            requests_to(context) as requests,
        ):
            answers = [await requests.client.get(path, headers=headers) for path in paths]
            body = {"name": "x", "definition": "x"}
            answers.append(await requests.client.post(WORKFLOWS, json=body, headers=headers))
            assert not any("access-control-allow-origin" in answer.headers for answer in answers)
            assert all("detail" in a.json() for a in answers if a.status_code == 403)
            return [answer.status_code for answer in answers]

    return asyncio.run(ask())


@pytest.mark.parametrize("headers", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_requests_to_this_machine_are_answered(tmp_path: Path, headers: dict[str, str]) -> None:
    assert statuses(tmp_path, headers, [WORKFLOWS, "/healthz"]) == [200, 200, 422]


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED.keys())
def test_requests_of_web_pages_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    assert set(statuses(tmp_path, headers, PATHS)) == {403}


def test_a_preflight_of_a_web_page_is_not_answered(tmp_path: Path) -> None:
    headers = {
        "Host": "localhost:8321",
        "Origin": "https://attacker.example",
        "Access-Control-Request-Method": "POST",
    }

    async def ask() -> None:
        async with service_context(tmp_path) as context, requests_to(context) as requests:
            answer = await requests.client.options(WORKFLOWS, headers=headers)
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers

    asyncio.run(ask())
