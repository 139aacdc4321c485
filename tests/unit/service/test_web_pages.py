"""The viewer's pages at `/ui` of the service: signing in, and what a project sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from evalcore.service.auth import Scope
from evalcore.service.ui import COOKIE, own_page
from evalcore.viewer.app import PAGES
from tests.support.service import Service, local_service

PAGE = {"Accept": "text/html"}


TEMPLATES = [
    f"/ui{route.path}"
    for pages in PAGES
    for route in pages.router.routes
    if isinstance(route, APIRoute) and "GET" in (route.methods or ())
]


def filled(template: str, suite: str, run: str) -> str:
    """Return the path of a page about a suite and a run, and the first of everything else."""
    names = {"suite": suite, "run_id": run, "run": run}
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda part: names.get(part[1], "0"), template)


class Projects:
    """A service with two projects, each with a run: their tokens, workflows, runs in the store."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.client = cast(TestClient, service.client)
        self.client.follow_redirects = False
        self.workflows, self.runs = [], []
        for token in service.tokens:
            self.client.headers["Authorization"] = f"Bearer {token}"
            workflow = service.register()
            service.save(workflow, {"kind": "exists"})
            service.run(workflow)
            folder = service.folder / "store" / "runs" / workflow.lower()
            self.workflows.append(workflow)
            self.runs.append(next(folder.iterdir()).name)
        del self.client.headers["Authorization"]

    def get(self, path: str, token: str | None = None, **headers: str) -> tuple[int, str]:
        """Return the status and the text of a page."""
        cookies = {} if token is None else {"Cookie": f"{COOKIE}={token}"}
        answer = self.client.get(path, headers={**PAGE, **cookies, **headers})
        return answer.status_code, answer.text


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Projects]:
    with local_service(tmp_path_factory.mktemp("pages"), projects=("one", "two")) as service:
        yield Projects(service)


@pytest.fixture(autouse=True)
def _no_cookies(projects: Projects) -> None:
    projects.client.cookies.clear()


def sign_in(projects: Projects, token: str, after: str = "/ui/", **headers: str) -> TestClient:
    projects.client.post("/ui/sign-in", data={"token": token, "after": after}, headers=headers)
    return projects.client


def test_a_browser_without_a_token_is_led_to_the_form_and_back(projects: Projects) -> None:
    client, run = projects.client, projects.runs[0]
    address = f"/ui/runs/{run}?order=plan&q=a%26b"
    asked = client.get(address, headers=PAGE)
    assert asked.status_code == 303
    form = client.get(asked.headers["location"]).text
    assert 'type="password"' in form
    after = form.split('name="after" value="')[1].split('"')[0].replace("&amp;", "&")
    token = projects.service.tokens[0]
    answer = client.post("/ui/sign-in", data={"token": token, "after": after})
    assert (answer.status_code, answer.headers["location"]) == (303, address)
    assert client.get(address, headers=PAGE).status_code == 200


@pytest.mark.parametrize(("scheme", "is_secure"), [("http", False), ("https", True)])
def test_the_cookie_is_for_this_site_and_no_script(
    projects: Projects, scheme: str, is_secure: bool
) -> None:
    token = projects.service.tokens[0]
    answer = projects.client.post(f"{scheme}://127.0.0.1/ui/sign-in", data={"token": token})
    fields = {each.strip().lower() for each in answer.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/ui"} <= fields
    assert ("secure" in fields) is is_secure
    assert token not in answer.headers["location"]


@pytest.mark.parametrize("token", ["", "nonsense", "evc_a_b", "x" * 20_000])
def test_a_wrong_token_is_refused_and_not_kept(projects: Projects, token: str) -> None:
    answer = projects.client.post("/ui/sign-in", data={"token": token})
    assert answer.status_code == (413 if len(token) > 10_000 else 401)
    assert "set-cookie" not in answer.headers


def test_signing_out_forgets_the_token(projects: Projects) -> None:
    client = sign_in(projects, projects.service.tokens[0])
    assert client.get("/ui/", headers=PAGE).status_code == 200
    assert client.post("/ui/sign-out").status_code == 303
    assert client.get("/ui/", headers=PAGE).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://attacker.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/ui/sign-in", "/ui/sign-out"])
def test_a_form_of_another_site_is_refused(
    projects: Projects, headers: dict[str, str], path: str
) -> None:
    data = {"token": projects.service.tokens[0]}
    answer = projects.client.post(path, data=data, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "address",
    [
        "https://attacker.example/",
        "//attacker.example",
        "/v1/files",
        "/ui/\\attacker",
        "/ui/sign-in",
        "/ui/\r\nX: y",
        "",
    ],
)
def test_signing_in_leads_to_own_pages_only(address: str) -> None:
    assert own_page(address) == "/ui/"


def test_every_page_asks_who_looks(projects: Projects) -> None:
    for template in TEMPLATES:
        path = filled(template, projects.workflows[0].lower(), projects.runs[0])
        assert projects.get(path)[0] == 303, template
        assert projects.get(path, Accept="application/json")[0] == 401, template


def test_a_project_sees_its_own_runs(projects: Projects) -> None:
    for number, token in enumerate(projects.service.tokens):
        suite, run = projects.workflows[number].lower(), projects.runs[number]
        status, text = projects.get("/ui/", token)
        assert (status, f"/ui/suites/{suite}" in text) == (200, True)
        for path in (f"suites/{suite}", f"runs/{run}"):
            status, text = projects.get(f"/ui/{path}", token)
            assert (status, projects.workflows[number] in text) == (200, True), (path, text)
        assert projects.get(f"/ui/suites/{suite}/trend.svg", token)[0] == 200


def test_no_identifier_of_a_project_is_visible_through_the_token_of_the_other(
    projects: Projects,
) -> None:
    own, (token, _) = projects, projects.service.tokens
    others = {own.workflows[1], own.workflows[1].lower(), own.runs[1]}
    for suite, run in ((own.workflows[1].lower(), own.runs[1]), (own.workflows[0], own.runs[0])):
        for template in TEMPLATES:
            path = filled(template, suite, run)
            for query in ("", f"?a={own.runs[1]}&b={own.runs[0]}", "?runs=500&order=plan"):
                status, text = own.get(path + query, token)
                asked = {each for each in others if each in path + query}
                assert status < 500, (path, text)
                assert not any(each in text for each in others - asked), path
                assert status != 200 or not any(each in path for each in others), path


def test_metrics_name_pages_by_their_template(projects: Projects) -> None:
    projects.get(f"/ui/runs/{projects.runs[0]}", projects.service.tokens[0])
    text = projects.client.get("/metrics").text
    assert 'route="/ui/runs/{run_id}"' in text
    assert 'route="/runs/{run_id}"' not in text


def test_a_browser_says_where_own_forms_come_from(projects: Projects) -> None:
    # With "no-referrer" Chromium sends `Origin: null` for the pages' own forms.
    page = projects.client.get("/ui/sign-in", headers=PAGE)
    assert page.headers["referrer-policy"] == "same-origin"


def own_form(projects: Projects, scope: Scope) -> dict[str, str]:
    """Return the headers of a form that a page sends with a new token of the first project."""
    parts = cast(FastAPI, projects.client.app).state.parts
    portal = projects.client.portal
    assert portal is not None
    issued = portal.call(parts.tokens.issue, "one", "annotator", scope)
    cookies = f"{COOKIE}={issued.secret}; evalcore-annotator=ann"
    return {**PAGE, "Cookie": cookies, "Origin": str(projects.client.base_url).rstrip("/")}


@pytest.mark.parametrize(("scope", "status"), [(Scope.READ, 403), (Scope.WRITE, 303)])
def test_forms_of_pages_take_the_write_scope(projects: Projects, scope: Scope, status: int) -> None:
    headers = own_form(projects, scope)
    name = {"annotator": "ann"}
    answer = projects.client.post("/ui/annotate", data=name, headers=headers)
    assert answer.status_code == status
    assert ("set-cookie" in answer.headers) is (status == 303)
    unsigned = projects.client.post(
        "/ui/annotate", data=name, headers={"Origin": headers["Origin"]}
    )
    assert unsigned.status_code == 401


def test_no_form_of_a_page_reaches_what_is_not_of_the_project(projects: Projects) -> None:
    headers = own_form(projects, Scope.WRITE)
    for run, status in ((projects.runs[1], 404), (projects.runs[0], 403)):
        decided = projects.client.post(
            f"/ui/annotate/{run}/decide", data={"x": "1"}, headers=headers
        )
        assert decided.status_code == status
    refused = {"capture": "0" * 64, "decision": "refuse"}
    for path in ("/ui/datasets/support", f"/ui/datasets/support/captures/{'0' * 64}"):
        answer = projects.client.post(path, data=refused, headers=headers)
        assert answer.status_code in {400, 404}, answer.text


def test_a_revoked_token_leads_to_the_form_again(projects: Projects) -> None:
    parts = cast(FastAPI, projects.client.app).state.parts
    portal = projects.client.portal
    assert portal is not None
    issued = portal.call(parts.tokens.issue, "one", "short", Scope.READ)
    assert projects.get("/ui/", issued.secret)[0] == 200
    portal.call(parts.tokens.revoke, issued.id)
    assert projects.get("/ui/", issued.secret)[0] == 303


def test_without_tokens_pages_are_open_on_this_machine_and_closed_to_web_pages(
    tmp_path: Path,
) -> None:
    with local_service(tmp_path, workers=0) as service:
        client = cast(TestClient, service.client)
        assert client.get("/ui", follow_redirects=False).headers["location"] == "/ui/"
        page = client.get("/ui/", headers=PAGE)
        assert page.status_code == 200
        assert "Sign out" not in page.text
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert client.get("/ui/", headers={"Host": "attacker.example"}).status_code == 403
        foreign = {"Origin": "https://attacker.example"}
        assert client.post("/ui/sign-out", headers=foreign).status_code == 403
