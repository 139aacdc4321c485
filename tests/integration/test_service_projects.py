"""Two projects of one service: no identifier of one is visible or usable through the other."""

from __future__ import annotations

import copy
import json
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.service import EVALCORE, WORKFLOW, Service, eval_body, service, token_of

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
    """Return the ids of one resource of each kind."""
    workflow = project.register()
    uploaded = project.client.post("/v1/files", files={"file": ("a.txt", b"secret")})
    body = {"inputs": {"amount": 4, "name": "Bo"}}
    started = project.post(f"/v1/workflows/{workflow}/runs", body, status=202)["id"]
    project.ended(f"/v1/workflows/runs/{started}")
    steps = project.get(f"/v1/workflows/runs/{started}/steps")["data"]
    saved = project.save(workflow, EXISTS)
    key = {"Idempotency-Key": KEY}
    run = project.post(RUNS, {"workflow_id": workflow}, status=202, **key)
    run = project.ended(f"{RUNS}/{run['id']}")
    return {
        "workflow": workflow,
        "version": project.get(f"/v1/workflows/{workflow}")["version_id"],
        "file": uploaded.json()["id"],
        "workflow_run": started,
        "step": next(step["id"] for step in steps if step["block_id"] == "extract"),
        "eval": saved,
        "run": run["id"],
        "result": project.results(run)[0]["id"],
    }


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Projects]:
    folder = tmp_path_factory.mktemp("projects")
    tokens = [token_of(folder, project) for project in ("one", "two")]
    with service(folder, "--rate", "0", token=tokens[0]) as owner:
        other = Service(owner.url, folder, tokens[1])
        yield Projects(owner, other, populate(owner), populate(other))


def input_of(file: str) -> dict[str, Any]:
    document = {"id": file, "filename": "a.txt", "mime_type": "text/plain"}
    return {"input-json-1": {"type": "file", "document": document}}


def requests_with(ids: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """Return a request for each place that an identifier can stand in."""
    body = copy.deepcopy(eval_body(ids["workflow"], EXISTS))
    step = {"type": "run_step", "run_id": ids["workflow_run"], "step_id": ids["step"]}
    run_step = {"type": "run_step", "run_id": ids["workflow_run"]}
    manual = {"type": "manual", "handle_inputs": input_of(ids["file"])}
    workflow, saved = f"/v1/workflows/{ids['workflow']}", f"{EVALS}/{ids['eval']}"
    started, run = f"/v1/workflows/runs/{ids['workflow_run']}", f"{RUNS}/{ids['run']}"
    single = {"type": "single", "eval_id": ids["eval"]}
    scope = f"workflow_id={ids['workflow']}"
    scoped = [(EVALS, "eval"), (RUNS, "run"), (RESULTS, "result")]
    cursors = [(f"{path}?{scope}&", kind) for path, kind in scoped]
    cursors.append(("/v1/workflows?", "workflow"))
    return [
        ("GET", workflow, None),
        ("GET", f"{workflow}?version_id={ids['version']}", None),
        ("PUT", f"{workflow}/draft", {"definition": WORKFLOW}),
        ("POST", f"{workflow}/publish", None),
        ("DELETE", workflow, None),
        ("POST", f"{workflow}/runs", {"inputs": {}}),
        ("GET", started, None),
        ("GET", f"{started}/steps", None),
        ("GET", f"{started}/steps?after={ids['step']}", None),
        ("GET", f"/v1/files/{ids['file']}", None),
        ("GET", f"/v1/files/{ids['file']}/content", None),
        ("POST", EVALS, body),
        ("POST", EVALS, {**body, "source": step}),
        ("POST", EVALS, {**body, "source": run_step}),
        ("POST", EVALS, {**body, "source": manual}),
        ("GET", saved, None),
        ("PATCH", saved, {"name": "taken"}),
        ("PATCH", saved, {"source": step}),
        ("DELETE", saved, None),
        ("GET", f"{EVALS}?{scope}", None),
        ("POST", RUNS, {"workflow_id": ids["workflow"]}),
        ("POST", RUNS, {"workflow_id": ids["workflow"], "scope": single}),
        ("GET", run, None),
        ("POST", f"{run}/cancel", None),
        ("GET", f"{RUNS}?{scope}", None),
        ("GET", f"{RUNS}?eval_id={ids['eval']}", None),
        ("GET", f"{RESULTS}?run_id={ids['run']}", None),
        ("GET", f"{RESULTS}?{scope}", None),
        ("GET", f"{RESULTS}/{ids['result']}", None),
        *(("GET", f"{path}{side}={ids[kind]}", None)
          for path, kind in cursors for side in ("before", "after")),
    ]  # fmt: skip


KINDS = ("workflow", "version", "file", "workflow_run", "step", "eval", "run", "result")
OPERATIONS = len(requests_with(dict.fromkeys(KINDS, "x")))


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(number=st.integers(0, OPERATIONS - 1), foreign=st.sets(st.sampled_from(KINDS), min_size=1))
def test_no_identifier_of_another_project_is_usable(
    projects: Projects, number: int, foreign: set[str]
) -> None:
    marks = {kind: f"<{kind}>" for kind in KINDS}
    template = json.dumps(requests_with(marks)[number])
    text = template
    for kind, mark in marks.items():
        ids = projects.owned if kind in foreign else projects.others
        text = text.replace(mark, ids[kind])
    used = {kind for kind, mark in marks.items() if mark in template}
    method, path, body = json.loads(text)
    is_foreign = bool(used & foreign)
    if not is_foreign and method != "GET":
        return
    before = snapshot(projects)
    answer = projects.other.client.request(method, path, json=body)
    if is_foreign and "?" not in path:
        assert answer.status_code in {400, 404, 422}, (method, path, body, answer.text)
    elif is_foreign:
        assert answer.status_code in {400, 404} or answer.json()["data"] == [], answer.text
    sent = f"{path}{body}"
    leaked = [value for value in projects.owned.values() if value in answer.text]
    assert all(value in sent for value in leaked), answer.text
    assert b"secret" not in answer.content or not is_foreign
    assert snapshot(projects) == before


def snapshot(projects: Projects) -> list[Any]:
    """Return what the owner sees of its resources."""
    ids, get = projects.owned, projects.owner.get
    return [
        get("/v1/workflows"),
        get(EVALS, workflow_id=ids["workflow"]),
        get(RUNS)["list_metadata"],
        [run["id"] for run in get(RUNS, limit=100)["data"]],
        get(f"/v1/files/{ids['file']}"),
    ]


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
