"""Saved evals as files: exported, executed without a service, imported into another one."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import yaml

from tests.support import shell
from tests.support.service import WORKFLOW, Service, eval_body

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.xdist_group("service")]
DOUBLED = {"kind": "equals", "expected": 42}


@pytest.fixture
def served(open_service: Service) -> Service:
    return open_service


def evalcore(served: Service, *arguments: str | Path, code: int = 0) -> str:
    """Return what a command printed that calls the service."""
    ended = shell.evalcore(*arguments, cwd=served.folder, env={"EVALCORE_SERVICE": served.url})
    assert ended.code == code, ended.out + ended.err
    return ended.out + ended.err


def save(served: Service, workflow: str, name: str | None, expected: int = 42) -> str:
    body = eval_body(workflow, {"kind": "equals", "expected": expected})
    return str(served.post("/v1/workflows/evals", {**body, "name": name})["id"])


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_an_exported_file_validates_and_runs_without_a_service(
    served: Service, tmp_path: Path, suffix: str
) -> None:
    workflow = served.register(name="invoices of May")
    for name in ("doubled", "doubled", None):
        save(served, workflow, name)
    file = tmp_path / f"evals.eval.{suffix}"
    assert "3 evals" in evalcore(served, "evals", "export", workflow, "--output", file)
    evalcore(served, "validate", "--strict", file)
    ran = evalcore(served, "run", file, "--store", tmp_path / "store")
    assert "invoices of May (workflow-evals): 3 items: 3 passed" in ran


def test_an_eval_of_an_earlier_run_is_exported_with_its_inputs(served: Service) -> None:
    workflow = served.register()
    inputs = {"inputs": {"amount": 4, "name": "Acme"}}
    run = served.post(f"/v1/workflows/{workflow}/runs", inputs, status=202)
    served.ended(f"/v1/workflows/runs/{run['id']}")
    body = eval_body(workflow, {"kind": "equals", "expected": 8})
    body["source"] = {"type": "run_step", "run_id": run["id"]}
    served.post("/v1/workflows/evals", body)
    (written,) = yaml.safe_load(evalcore(served, "evals", "export", workflow))["evals"]
    assert written["source"]["handle_inputs"] == {
        "input-json-0": {"type": "json", "data": 4},
        "input-json-1": {"type": "json", "data": "Acme"},
    }


def test_an_import_is_idempotent_by_name(served: Service, tmp_path: Path) -> None:
    workflow = served.register(name="origin")
    save(served, workflow, "first")
    save(served, workflow, None)
    file = tmp_path / "evals.yaml"
    evalcore(served, "evals", "export", workflow, "--output", file)
    target = served.register({**WORKFLOW, "workflow": {"entry": "extract"}}, name="copy")
    printed = evalcore(served, "evals", "import", file, "--workflow", target)
    assert "workflow copy: updated (definition)" in printed
    assert printed.count(": created") == 2
    again = evalcore(served, "evals", "import", file, "--workflow", target)
    assert again.count(": unchanged") == 3
    assert len(served.get("/v1/workflows/evals", workflow_id=target)["data"]) == 2


def test_what_a_file_changes_is_updated(served: Service, tmp_path: Path) -> None:
    workflow = served.register(name="changing")
    saved = save(served, workflow, "first")
    file = tmp_path / "evals.json"
    evalcore(served, "evals", "export", workflow, "--output", file)
    content = orjson.loads(file.read_bytes())
    content["evals"][0]["assertion"]["condition"]["expected"] = 43
    content["evals"][0]["name"] = "renamed"
    file.write_bytes(orjson.dumps(content))
    before = served.get(f"/v1/workflows/evals/{saved}")
    dry = evalcore(served, "evals", "import", file, "--dry-run")
    assert f"eval renamed: updated (name, assertion)  {saved}" in dry
    assert served.get(f"/v1/workflows/evals/{saved}") == before
    line = evalcore(served, "evals", "import", file, "--json").splitlines()[1]
    assert orjson.loads(line) == {
        "resource": "eval",
        "name": "renamed",
        "action": "updated",
        "id": saved,
        "fields": ["name", "assertion"],
    }
    after = served.get(f"/v1/workflows/evals/{saved}")
    assert (after["name"], after["assertion"]["condition"]["expected"]) == ("renamed", 43)
    assert after["assertion"]["id"] == before["assertion"]["id"]


def test_a_workflow_is_registered_once_by_its_name(served: Service, tmp_path: Path) -> None:
    file = tmp_path / "new-ones.yaml"
    body = eval_body("", DOUBLED)
    del body["workflow_id"]
    file.write_bytes(orjson.dumps({"workflow": WORKFLOW, "evals": [{**body, "name": "a"}]}))
    dry = evalcore(served, "evals", "import", file, "--dry-run")
    assert "workflow new-ones: created\neval a: created\n" in dry
    printed = evalcore(served, "evals", "import", file)
    workflow = printed.split("workflow new-ones: created")[1].split()[0]
    assert evalcore(served, "evals", "import", file).count(": unchanged") == 2
    assert "1 passed" in evalcore(served, "evals", "run", workflow, "--wait")


def test_an_import_of_a_file_with_mistakes_changes_nothing(served: Service, tmp_path: Path) -> None:
    file = tmp_path / "mistaken.yaml"
    file.write_bytes(orjson.dumps({"workflow": WORKFLOW, "evals": [{"name": "a"}]}))
    printed = evalcore(served, "evals", "import", file, code=2)
    assert "evals[0].target: is required" in printed


def test_a_name_of_several_workflows_is_refused(served: Service, tmp_path: Path) -> None:
    workflow = served.register(name="twins")
    file = tmp_path / "twins.yaml"
    evalcore(served, "evals", "export", workflow, "--output", file)
    served.register(name="twins")
    printed = evalcore(served, "evals", "import", file, code=2)
    assert "several workflows are called 'twins'" in printed
    assert "--workflow" in printed
