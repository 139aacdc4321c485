"""What a workflow may reach that was registered with the service."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from evalcore.workflow import confinement
from tests.support.model_server import ModelServer, model_server
from tests.support.servers import serving
from tests.unit.workflow.running import Ran, run

needs_landlock = pytest.mark.skipif(
    not confinement.can_confine(), reason="this system has no Landlock"
)


def run_of_service(**block: Any) -> Ran:
    raw = {"blocks": {"a": block}, "workflow": {"entry": "a"}}
    return run(raw, of_service=True)


def run_code(body: str) -> Ran:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return run_of_service(type="code", code=f"import os\ndef main(data):\n{lines}")


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the folder that the process stands in, as the service's database is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evalcore.db").write_text("token")
    (tmp_path / "mine.py").write_text("def secret(data): return open('evalcore.db').read()")
    return tmp_path / "evalcore.db"


REFUSED = {
    "read": "return open({path!r}).read()",
    "read by a link": "os.symlink({path!r}, 'link')\nreturn open('link').read()",
    "read through the parent": "return open(f'/proc/{{os.getppid()}}/cwd/evalcore.db').read()",
    "read the parent's environment": "return open(f'/proc/{{os.getppid()}}/environ').read()",
    "read by a program": "import subprocess\nreturn subprocess.check_output(['cat', {path!r}])",
    "list": "return os.listdir(os.path.dirname({path!r}))",
    "write": "open({path!r}, 'a').write('x')",
    "remove": "os.remove({path!r})",
    "list other executions": "import tempfile\nreturn os.listdir(os.path.dirname(os.getcwd()))",
    "call a database": "import socket\nsocket.create_connection(('127.0.0.1', 5432))",
    "call by a socket file": "import socket\nsocket.socket(socket.AF_UNIX)",
    "end the service": "os.kill(os.getppid(), 15)",
}


@needs_landlock
@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_code_cannot_reach_files_or_sockets_of_the_machine(body: str, secret: Path) -> None:
    ran = run_code(body.format(path=str(secret)))

    assert ran.error is not None
    assert "Error" in ran.message
    assert "no output" not in ran.message
    assert secret.read_text() == "token"
    assert {path.name for path in secret.parent.iterdir()} == {"evalcore.db", "mine.py"}


@needs_landlock
def test_code_has_a_folder_of_its_own_and_no_path_of_the_service(secret: Path) -> None:
    ran = run_code(
        "open('note.txt', 'w').write('x')\nimport tempfile, sqlite3, zoneinfo, subprocess\n"
        "listed = subprocess.run(['ls'], capture_output=True, text=True).stdout\n"
        "zoneinfo.ZoneInfo('UTC'), sqlite3.connect('own.db').execute('create table t (a)')\n"
        "return [os.getcwd(), tempfile.gettempdir(), listed, dict(os.environ)]"
    )
    folder, temporary, listed, environment = ran.left.value

    assert (folder, listed) == (temporary, "note.txt\n")
    assert not Path(folder).exists()
    assert not any(str(secret.parent) in value for value in environment.values())


@needs_landlock
def test_a_function_of_the_services_folder_is_not_called(secret: Path) -> None:
    ran = run_of_service(type="code", callable="mine:secret")

    assert "not on the allow-list" in ran.message
    assert secret.exists()


def test_where_code_cannot_be_confined_a_setting_lets_it_run(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "can_confine", lambda: False)
    assert "EVALCORE_ALLOW_UNCONFINED_CODE=1" in run_code("return 1").message

    monkeypatch.setenv("EVALCORE_ALLOW_UNCONFINED_CODE", "1")
    assert run_code(f"return open({str(secret)!r}).read()").left.value == "token"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.delenv("EVALCORE_ALLOW_ADDRESSES", raising=False)
    with model_server() as running:
        yield running


PRIVATE = [
    "http://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://169.254.169.254/latest/meta-data",
    "http://[fd00::1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://127\u30020\u30020\u30021:{port}/",
    "http://\uff11\uff12\uff17.0.0.1:{port}/",
]


@pytest.mark.parametrize("url", PRIVATE)
def test_a_request_reaches_no_private_address(url: str, server: ModelServer) -> None:
    ran = run_of_service(type="http", url=url.format(port=server.port))

    assert "is not a public address (EVALCORE_ALLOW_ADDRESSES allows it)" in ran.message
    assert not server.requests


def test_a_name_that_leads_to_a_private_address_is_refused_when_it_is_called(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [entry])
    ran = run_of_service(type="http", url=f"http://public.example:{server.port}/")

    assert "'public.example' is not a public address" in ran.message
    assert not server.requests


@pytest.fixture
def redirecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that is allowed below `/open`, from where it redirects to `/inner`."""
    called: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            called.append(self.path)
            self.send_response(302 if self.path == "/open/away" else 200)
            self.send_header("Location", "/inner")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as running:
        url = f"http://127.0.0.1:{running.server_port}"
        monkeypatch.setenv("EVALCORE_ALLOW_ADDRESSES", f"{url}/open")
        yield url
    assert "/inner" not in called


def test_an_allowed_address_is_reached_and_not_where_it_redirects_to(redirecting: str) -> None:
    assert run_of_service(type="http", url=f"{redirecting}/open/x").left.value == "ok"
    ran = run_of_service(type="http", url=f"{redirecting}/open/away")

    assert "'127.0.0.1' is not a public address" in ran.message


@pytest.mark.parametrize("name", ["OF_ENV_FILE", "EVAL_SET", "OPENAI_API_KEY"])
@pytest.mark.parametrize("field", ["url", "headers", "body"])
def test_a_request_reads_variables_that_the_settings_name_only(
    name: str, field: str, secret: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (secret.parent / ".env").write_text("OF_ENV_FILE=from-the-file-1")
    monkeypatch.setenv("EVAL_SET", "from-the-shell-1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-service-1")
    monkeypatch.setenv("EVALCORE_ALLOW_ADDRESSES", server.url)
    monkeypatch.setenv("EVALCORE_READABLE_NAMES", "NAMED")
    reference = f"${{{{ {name} }}}}"
    fields: dict[str, Any] = {
        "url": {"url": f"{server.url}/{reference}"},
        "headers": {"url": server.url, "headers": {"X-Key": reference}},
        "body": {"url": server.url, "method": "POST", "body": {"a": reference}},
    }
    ran = run_of_service(type="http", **fields[field])

    assert f"may not read the environment variable {name}" in ran.message
    assert not server.requests


def test_a_variable_that_the_settings_name_is_read(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMED", "named-value-1")
    monkeypatch.setenv("EVALCORE_READABLE_NAMES", "NAMED")
    monkeypatch.setenv("EVALCORE_ALLOW_ADDRESSES", server.url)
    url = f"{server.url}/v1/chat/completions"
    body = {"model": "m", "messages": [{"role": "user", "content": "${{ NAMED }}"}]}
    run_of_service(type="http", url=url, body=body)

    assert "named-value-1" in str(server.requests[0])
