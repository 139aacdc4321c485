"""Projects of one service: keys of runs, refusals without a token, the audit log, secrets."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import httpx
import pytest

from tests.support.service import EVALCORE, WORKFLOW, Service, service, token_of

pytestmark = [
    pytest.mark.extended,
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.xdist_group("service"),
]
EVALS, RUNS, RESULTS = (f"/v1/workflows/evals{part}" for part in ("", "/runs", "/results"))
EXISTS = {"kind": "exists"}
KEY = "nightly"


@dataclass(frozen=True)
class Projects:
    """Two projects of a service, and the identifiers of each by their kind."""

    owner: Service
    other: Service
    owned: Mapping[str, str]
    others: Mapping[str, str]


def populate(project: Service) -> dict[str, str]:
    """Return the ids of a workflow and of a run of it."""
    workflow = project.register()
    project.save(workflow, EXISTS)
    key = {"Idempotency-Key": KEY}
    run = project.post(RUNS, {"workflow_id": workflow}, status=202, **key)
    return {"workflow": workflow, "run": project.ended(f"{RUNS}/{run['id']}")["id"]}


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Projects]:
    folder = tmp_path_factory.mktemp("projects")
    tokens = [token_of(folder, project) for project in ("one", "two")]
    with service(folder, "--rate", "0", token=tokens[0]) as owner:
        other = Service(owner.url, folder, tokens[1])
        yield Projects(owner, other, populate(owner), populate(other))


def test_the_key_of_a_run_belongs_to_one_project(projects: Projects) -> None:
    body = {"workflow_id": projects.others["workflow"]}
    key = {"Idempotency-Key": KEY}
    own = projects.other.post(RUNS, body, status=202, **key)
    assert own["id"] == projects.others["run"] != projects.owned["run"]


def test_without_a_token_nothing_of_a_request_is_read(projects: Projects) -> None:
    for token in (None, "evc_x_y", "Basic x", "evc_" + "a" * 22 + "_" + "b" * 43):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        for path, content in ((EVALS, b"{"), ("/v1/files", b"x"), (EVALS, b"a" * 11_000_000)):
            answer = httpx.post(
                f"{projects.owner.url}{path}", content=content, headers=headers, timeout=60
            )
            assert answer.status_code == 401, answer.text
            assert answer.headers["www-authenticate"] == "Bearer"
            assert token is None or token not in answer.text


def test_web_pages_of_other_origins_get_no_permission(projects: Projects) -> None:
    headers = {"Origin": "https://example.org", "Access-Control-Request-Method": "GET"}
    for method in ("OPTIONS", "GET"):
        answer = projects.owner.client.request(method, "/v1/workflows", headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_writes_are_in_the_audit_log_with_the_status_of_their_answers(projects: Projects) -> None:
    client = projects.owner.client
    workflow = projects.owned["workflow"]
    sent = [
        client.post("/v1/workflows", content=b"{"),
        client.post("/v1/workflows", json={"name": 5}),
        client.put(f"/v1/workflows/{workflow}/draft", json={"definition": WORKFLOW}),
        client.post("/v1/workflows/wf_absent/publish"),
    ]
    database = sqlite3.connect(projects.owner.folder / "evalcore.db")
    rows = database.execute(
        "SELECT method, path, status, resource_id, token_id FROM audit_log ORDER BY number DESC"
    ).fetchmany(len(sent))
    database.close()
    assert [row[2] for row in rows[::-1]] == [answer.status_code for answer in sent]
    assert [answer.status_code for answer in sent] == [422, 422, 200, 404]
    assert rows[1][:2] == ("PUT", f"/v1/workflows/{workflow}/draft")
    assert rows[1][3] == workflow
    assert all(row[4].startswith("tok_") for row in rows)


def test_no_token_stands_in_the_log_or_in_the_database(projects: Projects) -> None:
    folder = projects.owner.folder
    written = [path for path in folder.rglob("*") if path.is_file()]
    for project in (projects.owner, projects.other):
        secret = str(project.token).split("_", 2)[2].encode()
        assert not [path for path in written if secret in path.read_bytes()]


def test_too_many_requests_are_told_when_to_come_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("rate")
    with service(folder, "--rate", "0.5", token=token_of(folder, "one")) as limited:
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
