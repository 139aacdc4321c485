"""The viewer's pages at `/ui` of the service: signing in, and who may look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from evalcore.service.auth import IssuedToken, Scope
from evalcore.service.ui import COOKIE, own_page
from evalcore.viewer.app import PAGES
from tests.support.service import Service, local_service

PAGE = {"Accept": "text/html"}


TEMPLATES = [
    f"/ui{route.path}"
    for module in PAGES
    for route in module.router.routes
    if isinstance(route, APIRoute) and "GET" in (route.methods or ())
]


def filled(template: str, suite: str, run: str) -> str:
    """Return the path of a page about a suite and a run, and the first of everything else."""
    names = {"suite": suite, "run_id": run, "run": run}
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda part: names.get(part[1], "0"), template)


class Pages:
    """A service that asks for tokens: one of them, a workflow, and a run of it in the store."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.token = str(service.token)
        self.client = cast(TestClient, service.client)
        self.client.follow_redirects = False
        self.workflow = service.register()
        service.save(self.workflow, {"kind": "exists"})
        service.run(self.workflow)
        folder = service.folder / "store" / "runs" / self.workflow.lower()
        self.run = next(folder.iterdir()).name
        del self.client.headers["Authorization"]
        # As a browser says of the forms of these pages.
        self.client.headers["Origin"] = "http://127.0.0.1"

    def issued(self, name: str, scope: Scope) -> IssuedToken:
        """Return a new token."""
        context = cast(FastAPI, self.client.app).state.context
        portal = self.client.portal
        assert portal is not None
        issued: IssuedToken = portal.call(context.tokens.issue, name, scope)
        return issued

    def get(self, path: str, token: str | None = None, **headers: str) -> tuple[int, str]:
        """Return the status and the text of a page."""
        cookies = {} if token is None else {"Cookie": f"{COOKIE}={token}"}
        answer = self.client.get(path, headers={**PAGE, **cookies, **headers})
        return answer.status_code, answer.text


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with local_service(tmp_path_factory.mktemp("pages"), with_token=True) as service:
        yield Pages(service)


@pytest.fixture(autouse=True)
def _no_cookies(pages: Pages) -> None:
    pages.client.cookies.clear()


def sign_in(pages: Pages, token: str, after: str = "/ui/", **headers: str) -> TestClient:
    pages.client.post("/ui/sign-in", data={"token": token, "after": after}, headers=headers)
    return pages.client


def test_a_browser_without_a_token_is_led_to_the_form_and_back(pages: Pages) -> None:
    client, run = pages.client, pages.run
    address = f"/ui/runs/{run}?order=plan&q=a%26b"
    asked = client.get(address, headers=PAGE)
    assert asked.status_code == 303
    form = client.get(asked.headers["location"]).text
    assert 'type="password"' in form
    after = form.split('name="after" value="')[1].split('"')[0].replace("&amp;", "&")
    token = pages.token
    answer = client.post("/ui/sign-in", data={"token": token, "after": after})
    assert (answer.status_code, answer.headers["location"]) == (303, address)
    assert client.get(address, headers=PAGE).status_code == 200


@pytest.mark.parametrize(("scheme", "is_secure"), [("http", False), ("https", True)])
def test_the_cookie_is_for_this_site_and_no_script(
    pages: Pages, scheme: str, is_secure: bool
) -> None:
    token = pages.token
    answer = pages.client.post(f"{scheme}://127.0.0.1/ui/sign-in", data={"token": token})
    fields = {each.strip().lower() for each in answer.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/ui"} <= fields
    assert ("secure" in fields) is is_secure
    assert token not in answer.headers["location"]


@pytest.mark.parametrize("token", ["", "nonsense", "evc_a_b", "x" * 20_000])
def test_a_wrong_token_is_refused_and_not_kept(pages: Pages, token: str) -> None:
    answer = pages.client.post("/ui/sign-in", data={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_signing_out_forgets_the_token(pages: Pages) -> None:
    client = sign_in(pages, pages.token)
    assert client.get("/ui/", headers=PAGE).status_code == 200
    assert client.post("/ui/sign-out").status_code == 303
    assert client.get("/ui/", headers=PAGE).status_code == 303


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/ui/sign-in", {"Origin": "https://attacker.example"}),
        ("/ui/sign-in", {"Sec-Fetch-Site": "cross-site"}),
        ("/ui/sign-out", {"Origin": "null"}),
        ("/ui/sign-out", {"Sec-Fetch-Site": "same-site"}),
    ],
)
def test_a_form_of_another_site_is_refused(
    pages: Pages, path: str, headers: dict[str, str]
) -> None:
    data = {"token": pages.token}
    answer = pages.client.post(path, data=data, headers=headers)
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
def test_signing_in_leads_to_own_pagesonly(address: str) -> None:
    assert own_page(address) == "/ui/"


def test_every_page_asks_who_looks(pages: Pages) -> None:
    for template in TEMPLATES:
        path = filled(template, pages.workflow.lower(), pages.run)
        assert pages.get(path)[0] == 303, template
        assert pages.get(path, Accept="application/json")[0] == 401, template


def test_a_token_shows_the_runs_of_the_store(pages: Pages) -> None:
    suite = pages.workflow.lower()
    status, text = pages.get("/ui/", pages.token)
    assert (status, f"/ui/suites/{suite}" in text) == (200, True)
    for path in (f"suites/{suite}", f"runs/{pages.run}"):
        status, text = pages.get(f"/ui/{path}", pages.token)
        assert (status, pages.workflow in text) == (200, True), (path, text)
    assert pages.get(f"/ui/suites/{suite}/trend.svg", pages.token)[0] == 200


def test_a_browser_says_where_own_forms_come_from(pages: Pages) -> None:
    # With "no-referrer" Chromium sends `Origin: null` for the pages' own forms.
    page = pages.client.get("/ui/sign-in", headers=PAGE)
    assert page.headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize(("scope", "status"), [(Scope.READ, 403), (Scope.EVALS, 303)])
def test_forms_of_pagestake_the_scope_evals(pages: Pages, scope: Scope, status: int) -> None:
    cookies = f"{COOKIE}={pages.issued('annotator', scope).secret}; evalcore-annotator=ann"
    headers = {**PAGE, "Cookie": cookies}
    name = {"annotator": "ann"}
    answer = pages.client.post("/ui/annotate", data=name, headers=headers)
    assert answer.status_code == status
    assert ("set-cookie" in answer.headers) is (status == 303)
    unsigned = pages.client.post("/ui/annotate", data=name)
    assert unsigned.status_code == 401


def test_a_revoked_token_leads_to_the_form_again(pages: Pages) -> None:
    issued = pages.issued("short", Scope.READ)
    assert pages.get("/ui/", issued.secret)[0] == 200
    portal = pages.client.portal
    assert portal is not None
    portal.call(cast(FastAPI, pages.client.app).state.context.tokens.revoke, issued.id)
    assert pages.get("/ui/", issued.secret)[0] == 303


def test_without_tokens_pagesare_open_on_this_machine_and_closed_to_web_pages(
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


def test_metrics_name_pagesby_their_template(pages: Pages) -> None:
    pages.get(f"/ui/runs/{pages.run}", pages.token)
    text = pages.client.get("/metrics").text
    assert 'route="/ui/runs/{run_id}"' in text
    assert 'route="/runs/{run_id}"' not in text
