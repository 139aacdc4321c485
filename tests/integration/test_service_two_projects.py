"""Two projects over REST and MCP: no identifier of one answers to the token of the other."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalcore.service.mcp.tool_table import TOOL_TABLE
from tests.support.service import WORKFLOW, Service, eval_body, local_service

EVALS, RUNS, RESULTS = (f"/v1/workflows/evals{part}" for part in ("", "/runs", "/results"))
EXISTS = {"kind": "exists"}
SECRET = "the owner's words"
PAGE = {"limit": 5}
KINDS = ("workflow", "file", "workflow_run", "step", "eval", "run", "result")


class Projects:
    """A service, the ids of the owner's resources and those of the other's, by kind."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.owned, self.others = (populate(service, token) for token in service.tokens)
        self.message = itertools.count(1)

    def send(self, token: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Return the status and the text of an answer."""
        headers = {"Authorization": f"Bearer {token}"}
        answer = self.service.client.request(method, path, json=body, headers=headers)
        return answer.status_code, answer.text

    def call(self, token: str, tool: str, arguments: Mapping[str, Any]) -> tuple[bool, str]:
        """Return whether a tool refused the call, and the text of its answer."""
        message = {
            "jsonrpc": "2.0",
            "id": next(self.message),
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        headers = {"Accept": "application/json, text/event-stream"}
        headers["Authorization"] = f"Bearer {token}"
        answer = self.service.client.post("/mcp", json=message, headers=headers)
        result = answer.json()["result"]
        return bool(result.get("isError")), answer.text

    def snapshot(self) -> list[Any]:
        """Return all that the owner sees."""
        owner, ids = self.service.tokens[0], self.owned
        paths = [
            f"/v1/workflows/{ids['workflow']}/export",
            f"{EVALS}?workflow_id={ids['workflow']}",
            f"{RUNS}?limit=100",
            f"{RESULTS}?limit=100",
            f"/v1/workflows/runs/{ids['workflow_run']}/steps",
            f"/v1/files/{ids['file']}",
        ]
        return [self.send(owner, "GET", path) for path in paths]


def populate(service: Service, token: str) -> dict[str, str]:
    """Return the ids of one resource of each kind of a token's project."""
    own = Service(service.url, service.folder)
    own.client = service.client
    before = service.client.headers["Authorization"]
    own.client.headers["Authorization"] = f"Bearer {token}"
    workflow = own.register()
    file = own.client.post("/v1/files", files={"file": ("a.txt", SECRET.encode())}).json()
    body = {"inputs": {"amount": 4, "name": SECRET}}
    started = own.post(f"/v1/workflows/{workflow}/runs", body, status=202)["id"]
    own.ended(f"/v1/workflows/runs/{started}")
    steps = own.get(f"/v1/workflows/runs/{started}/steps")["data"]
    step = next(step["id"] for step in steps if step["block_id"] == "extract")
    source = {"type": "run_step", "run_id": started, "step_id": step}
    saved = own.post(EVALS, {**eval_body(workflow, EXISTS), "source": source, "name": SECRET})
    run = own.run(workflow)
    result = own.results(run)[0]["id"]
    own.client.headers["Authorization"] = before
    return {
        "workflow": workflow,
        "file": file["id"],
        "workflow_run": started,
        "step": step,
        "eval": saved["id"],
        "run": run["id"],
        "result": result,
    }


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Projects]:
    with local_service(tmp_path_factory.mktemp("two"), projects=("owner", "other")) as service:
        yield Projects(service)


def requests_by_path(ids: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """Return the requests whose path names a resource."""
    workflow, saved = f"/v1/workflows/{ids['workflow']}", f"{EVALS}/{ids['eval']}"
    started, run = f"/v1/workflows/runs/{ids['workflow_run']}", f"{RUNS}/{ids['run']}"
    return [
        ("GET", workflow, None),
        ("GET", f"{workflow}/export", None),
        ("PUT", f"{workflow}/draft", {"definition": WORKFLOW}),
        ("POST", f"{workflow}/publish", None),
        ("POST", f"{workflow}/runs", {"inputs": {}}),
        ("DELETE", workflow, None),
        ("GET", started, None),
        ("GET", f"{started}/steps", None),
        ("GET", f"/v1/files/{ids['file']}", None),
        ("GET", f"/v1/files/{ids['file']}/content", None),
        ("GET", saved, None),
        ("PATCH", saved, {"name": "taken"}),
        ("DELETE", saved, None),
        ("GET", run, None),
        ("POST", f"{run}/cancel", None),
        ("GET", f"{RESULTS}/{ids['result']}", None),
    ]


@pytest.mark.parametrize("number", range(len(requests_by_path(dict.fromkeys(KINDS, "x")))))
def test_a_resource_of_another_project_does_not_exist(projects: Projects, number: int) -> None:
    method, path, body = requests_by_path(projects.owned)[number]
    absent = requests_by_path({kind: projects.owned[kind][:-3] + "xxx" for kind in KINDS})[number]
    before = projects.snapshot()
    status, text = projects.send(projects.service.tokens[1], method, path, body)
    missing = projects.send(projects.service.tokens[1], *absent)
    # In nothing it differs from what there is not.
    assert (status, missing[0]) == (404, 404)
    assert sorted(json.loads(text)) == sorted(json.loads(missing[1])) == ["detail"]
    assert SECRET not in text
    assert projects.snapshot() == before


def calls_with(ids: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Return a call for each place of a tool's arguments that an identifier can stand in."""
    body = copy.deepcopy(eval_body(ids["workflow"], EXISTS))
    step = {"type": "run_step", "run_id": ids["workflow_run"], "step_id": ids["step"]}
    document = {"id": ids["file"], "filename": "a.txt", "mime_type": "text/plain"}
    inputs = {"input-json-1": {"type": "file", "document": document}}
    manual = {"type": "manual", "handle_inputs": inputs}
    single = {"type": "single", "eval_id": ids["eval"]}
    scope = {"workflow_id": ids["workflow"]}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("create", body),
        ("create", {**body, "source": step}),
        ("create", {**body, "source": manual}),
        ("list", scope),
        ("list", {**scope, "after": ids["eval"]}),
        ("get", {"eval_id": ids["eval"]}),
        ("update", {"eval_id": ids["eval"], "name": "taken"}),
        ("update", {"eval_id": ids["eval"], "source": step}),
        ("update", {"eval_id": ids["eval"], "source": manual}),
        ("delete", {"eval_id": ids["eval"]}),
        ("runs_create", scope),
        ("runs_create", {**scope, "scope": single}),
        ("runs_get", {"run_id": ids["run"]}),
        ("results_list", {"run_id": ids["run"]}),
        ("results_list", {"eval_id": ids["eval"], **PAGE}),
        ("results_list", {"before": ids["result"]}),
        ("results_get", {"result_id": ids["result"]}),
    ]
    return [(f"workflows_evals_{name}", arguments) for name, arguments in calls]


MARKS = {kind: f"<{kind}>" for kind in KINDS}
TEMPLATES = [(tool, json.dumps(arguments)) for tool, arguments in calls_with(MARKS)]


def test_every_tool_is_called() -> None:
    assert {tool for tool, _ in TEMPLATES} == {row.name for row in TOOL_TABLE}


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(template=st.sampled_from(TEMPLATES), foreign=st.sets(st.sampled_from(KINDS), min_size=1))
def test_no_identifier_of_another_project_is_usable_in_a_tool(
    projects: Projects, template: tuple[str, str], foreign: set[str]
) -> None:
    tool, text = template
    named = {kind for kind, mark in MARKS.items() if mark in text}
    if not named & foreign:
        return
    for kind, mark in MARKS.items():
        text = text.replace(mark, (projects.owned if kind in foreign else projects.others)[kind])
    before = projects.snapshot()
    refused, answer = projects.call(projects.service.tokens[1], tool, orjson.loads(text))
    assert refused or not orjson.loads(answer)["result"]["structuredContent"]["data"], answer
    answered = [value for value in projects.owned.values() if value in answer]
    assert all(value in text for value in answered), answer
    assert projects.snapshot() == before


def test_lists_have_the_rows_of_one_project(projects: Projects) -> None:
    for token, foreign in zip(
        projects.service.tokens, (projects.others, projects.owned), strict=True
    ):
        for path in ("/v1/workflows", RUNS, RESULTS):
            status, text = projects.send(token, "GET", f"{path}?limit=100")
            assert status == 200
            assert not [value for value in foreign.values() if value in text], path
