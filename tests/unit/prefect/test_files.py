"""The files of an installation, checked by their formats' own validators: no engine runs here."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import compose_spec
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
DEPLOYMENTS = ROOT / "deployments"
COMPOSE = DEPLOYMENTS / "docker-compose.yaml"
KUBERNETES = DEPLOYMENTS / "kubernetes"
JOB_TEMPLATE = KUBERNETES / "job-template.json"
KUBERNETES_VERSION = "1.30"
SECRETS = {"POSTGRES_PASSWORD": "postgres", "S3_SECRET_KEY": "store", "PREFECT_AUTH": "a:b"}


# Compose


def compose_text(variables: dict[str, str]) -> str:
    """Put variables in as compose does: `$NAME`, `${NAME:-default}`, `${NAME:?error}`."""

    def value(found: re.Match[str]) -> str:
        name, sign, rest = found["name"], found["sign"], found["rest"]
        if variables.get(name):
            return variables[name]
        if sign == ":?":
            raise KeyError(name)
        return rest or ""

    pattern = r"\$\{(?P<name>\w+)(?:(?P<sign>:[-?])(?P<rest>[^}]*))?\}"
    return re.sub(pattern, value, COMPOSE.read_text())


@pytest.fixture
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(compose_text(SECRETS))
    return loaded


def test_the_compose_file_is_valid() -> None:
    expanded = yaml.safe_dump(
        {
            key: value
            for key, value in yaml.safe_load(compose_text(SECRETS)).items()
            if not key.startswith("x-")
        }
    )
    parsed = compose_spec.PyCompose.from_yaml(expanded)
    parsed.validate()
    assert {"server", "services", "postgres", "redis", "seaweedfs", "worker", "evals"} <= set(
        parsed.service_names()
    )


@pytest.mark.parametrize("missing", list(SECRETS))
def test_compose_does_not_start_without_a_secret(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        compose_text({name: value for name, value in SECRETS.items() if name != missing})


def test_no_secret_stands_in_the_compose_file_or_its_example() -> None:
    example = (DEPLOYMENTS / "compose.env.example").read_text()
    given = dict(
        line.split("=", 1) for line in example.splitlines() if line and not line.startswith("#")
    )
    assert {name: given[name] for name in SECRETS} == dict.fromkeys(SECRETS, "")


def test_services_wait_for_services_that_are_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in services, name
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for {other}"


def test_compose_configures_servers_as_the_profile_for_replicas_does(
    compose: dict[str, Any],
) -> None:
    profile = profiles()["replicas"]
    server = compose["services"]["server"]["environment"]
    shared = {name for name in profile if name.startswith("PREFECT_SERVER_EVENTS")} | {
        name for name in profile if name.startswith("PREFECT_SERVER_SERVICES")
    }
    assert {name: server.get(name) for name in shared} == {name: profile[name] for name in shared}


def test_the_service_and_the_workers_share_the_store_and_the_plan_key(
    compose: dict[str, Any],
) -> None:
    evals, worker = (compose["services"][name]["environment"] for name in ("evals", "worker"))
    for name in ("EVALCORE_STORE", "EVALCORE_PLAN_KEY", "AWS_ENDPOINT_URL", "PREFECT_API_URL"):
        assert evals[name] == worker[name]


# Kubernetes


def documents(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    if path == JOB_TEMPLATE:
        loaded = json.loads(text)["job_configuration"]["job_manifest"]
        filled: dict[str, Any] = fill(loaded)
        return [filled]
    loaded = [document for document in yaml.safe_load_all(text) if document]
    return [part for document in loaded for part in parts(document)]


def parts(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a document, or of a RayCluster, whose schema is KubeRay's, its pods."""
    if document["kind"] != "RayCluster":
        return [document]
    groups = [document["spec"]["headGroupSpec"], *document["spec"]["workerGroupSpecs"]]
    name = {"name": "pods"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": name,
            "template": group["template"],
        }
        for group in groups
    ]


PLACEHOLDERS: dict[str, Any] = {
    "labels": {"prefect.io/flow-run-id": "x"},
    "command": ["prefect", "flow-run", "execute"],
    "env": [{"name": "PREFECT_API_URL", "value": "http://server/api"}],
    "image": "evalcore:1",
    "image_pull_policy": "IfNotPresent",
    "name": "flow-run",
    "namespace": "evalcore",
}


def fill(value: Any) -> Any:
    """Put values where the worker puts them."""
    if isinstance(value, dict):
        return {key: fill(one) for key, one in value.items()}
    if isinstance(value, list):
        return [fill(one) for one in value]
    if isinstance(value, str):
        whole = re.fullmatch(r"\{\{ (\w+) \}\}", value)
        if whole:
            return PLACEHOLDERS[whole[1]]
        return re.sub(r"\{\{ (\w+) \}\}", lambda found: str(PLACEHOLDERS[found[1]]), value)
    return value


MANIFESTS = [
    pytest.param(document, id=f"{path.stem} {document['kind']} {number}")
    for path in (*sorted(KUBERNETES.rglob("*.yaml")), JOB_TEMPLATE)
    if path.name != "kustomization.yaml"
    for number, document in enumerate(documents(path))
]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_is_valid(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)


def test_the_service_has_the_secrets_of_flow_runs_and_its_database() -> None:
    flow_run = pods(documents(JOB_TEMPLATE)[0])
    _, deployment = documents(KUBERNETES / "evals.yaml")
    evals = pods(deployment)
    assert flow_run is not None
    assert evals is not None
    shared = flow_run["containers"][0]["envFrom"]
    (database,) = (source for source in evals["containers"][0]["envFrom"] if source not in shared)
    assert database == {"secretRef": {"name": "evalcore-evals"}}


@pytest.mark.parametrize("folder", ["", "dask", "ray"])
def test_kustomize_applies_every_manifest_but_the_template(folder: str) -> None:
    kustomization = yaml.safe_load((KUBERNETES / folder / "kustomization.yaml").read_text())
    there = {path.name for path in (KUBERNETES / folder).glob("*.yaml")}
    assert set(kustomization["resources"]) == there - {"kustomization.yaml"}


def pods(manifest: dict[str, Any]) -> dict[str, Any] | None:
    template = manifest.get("template") or manifest.get("spec", {}).get("template")
    return None if template is None else template["spec"]


WORKLOADS = [one for one in MANIFESTS if pods(one.values[0]) is not None]  # type: ignore[arg-type]


@pytest.mark.parametrize("manifest", WORKLOADS)
def test_containers_are_bounded_and_may_do_nothing_special(manifest: dict[str, Any]) -> None:
    pod = pods(manifest)
    assert pod is not None
    assert pod["securityContext"]["runAsNonRoot"]
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}
        assert not container["securityContext"]["allowPrivilegeEscalation"]


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_workers_of_clusters_have_the_secrets_of_flow_runs(engine: str) -> None:
    flow_run = pods(documents(JOB_TEMPLATE)[0])
    path = KUBERNETES / {"dask": "dask/dask.yaml", "ray": "ray/raycluster.yaml"}[engine]
    workers = pods(documents(path)[-1])
    assert flow_run is not None
    assert workers is not None
    shared = workers["containers"][0]["envFrom"]
    assert [each for each in flow_run["containers"][0]["envFrom"] if each not in shared] == []


def test_flow_runs_may_reach_the_clusters() -> None:
    labels = documents(JOB_TEMPLATE)[0]["spec"]["template"]["metadata"]["labels"]
    for name in ("dask/dask.yaml", "ray/raycluster.yaml"):
        policy, *_ = documents(KUBERNETES / name)
        own, flow_runs = (rule["podSelector"] for rule in policy["spec"]["ingress"][0]["from"])
        assert flow_runs["matchLabels"] == labels
        assert own["matchLabels"] == policy["spec"]["podSelector"]["matchLabels"]


@pytest.mark.parametrize("manifest", WORKLOADS)
def test_secrets_are_only_referred_to(manifest: dict[str, Any]) -> None:
    pod = pods(manifest)
    assert pod is not None
    for container in pod["containers"]:
        assert any("secretRef" in source for source in container["envFrom"])
        names = {variable["name"] for variable in container.get("env", [])}
        assert not [name for name in names if re.search(r"KEY|SECRET|AUTH|PASSWORD", name)]


def test_what_stays_up_is_probed() -> None:
    found = [one.values[0] for one in WORKLOADS]
    lasting = [one for one in found if isinstance(one, dict) and one["kind"] == "Deployment"]
    assert len(lasting) == 5
    for manifest in lasting:
        for container in manifest["spec"]["template"]["spec"]["containers"]:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)


# Profiles


def profiles() -> dict[str, dict[str, str]]:
    loaded: dict[str, dict[str, str]] = tomllib.loads((DEPLOYMENTS / "profiles.toml").read_text())[
        "profiles"
    ]
    return loaded


@pytest.mark.parametrize("name", ["dev", "production", "replicas"])
def test_prefect_knows_every_setting_of_a_profile(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import Settings
    from prefect.settings.legacy import _get_settings_fields

    known = _get_settings_fields(Settings)
    profile = profiles()[name]
    assert [setting for setting in profile if setting not in known] == []
    for setting, value in profile.items():
        monkeypatch.setenv(setting, value)
    Settings()  # raises if a value cannot be


# The image


def test_the_image_copies_what_the_wheel_needs() -> None:
    copied = set(
        re.findall(r"^COPY (?!--)(.+) \S+$", (DEPLOYMENTS / "Dockerfile").read_text(), re.M)
    )
    names = {name for line in copied for name in line.split()}
    assert {"pyproject.toml", "uv.lock", ".ci", "evalcore"} <= names
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_image_is_built_from_nothing_else() -> None:
    ignored = (DEPLOYMENTS / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    assert [name for name in let_in if not (ROOT / name).exists()] == []
