"""A canary in every place where a secret can stand, looked for in everything that is left."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import zstandard

from tests.support.servers import serving
from tests.support.shell import environment, evalcore

CANARY = "c4nary+S3cr/et=Value'42"
OTHER = "sk-c4nary-provider-0815"
BODY = "t0ken-of-the-body-4711"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Repeating(BaseHTTPRequestHandler):
    """Repeats everything that it is sent."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.path.startswith("/fail"):
            self._send(404, f"no {self.path} for {dict(self.headers)} {body}")
        elif self.path.endswith("/chat/completions"):
            text = f"you are {self.headers.get('Authorization')} {body}"
            message = {"role": "assistant", "content": text}
            usage = {"prompt_tokens": 1, "completion_tokens": 1}
            self._send(200, json.dumps({"choices": [{"message": message}], "usage": usage}))
        else:
            seen = {"path": self.path, "headers": dict(self.headers), "body": body}
            seen["digest"] = _digest(self.headers.get("X-Anything") or "")
            self._send(200, json.dumps(seen))

    def _send(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer  # noqa: N815  (the names that the server calls)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with serving(_Repeating) as running:
        yield f"http://127.0.0.1:{running.server_address[1]}"


FUNCTIONS = """
import base64, os, sys, urllib.parse

def secret():
    return os.environ["EVAL_CANARY"]

def returns(input, *, context):
    print("printed", secret())
    print("printed", secret(), file=sys.stderr)
    return {"value": secret(), secret(): 1, "quoted": urllib.parse.quote(secret()),
            "b64": base64.b64encode(b"user:" + secret().encode()).decode()}

def raises(input, *, context):
    try:
        raise KeyError(secret())
    except KeyError as error:
        found = ValueError("no such key: " + secret())
        found.add_note(secret())
        raise found from error

def checks(output, **_):
    return {"score": 0.5, "reason": "compared with " + secret()}
"""

COMMAND = "import os, sys; print(os.environ['OTHER_NAME']); print(sys.argv[1]); {end}"


def _suite(folder: Path, server: str) -> Path:
    (folder / "leaky.py").write_text(FUNCTIONS)
    run = [sys.executable, "-c"]
    failing = COMMAND.format(end="sys.exit(os.environ['OTHER_NAME'])")
    targets: list[dict[str, Any]] = [
        {"name": "returns", "provider": "python", "callable": "leaky:returns"},
        {"name": "raises", "provider": "python", "callable": "leaky:raises"},
        {
            "name": "command",
            "provider": "command",
            "command": [*run, COMMAND.format(end=""), "${{ EVAL_CANARY }}"],
            "env": {"OTHER_NAME": "${{ OPENAI_API_KEY }}"},
        },
        {
            "name": "fails",
            "provider": "command",
            "command": [*run, failing, "${{ EVAL_CANARY }}"],
            "env": {"OTHER_NAME": "${{ EVAL_CANARY }}"},
        },
        {
            "name": "web",
            "provider": "http",
            "url": f"{server}/x?token=${{{{ EVAL_CANARY }}}}&q={{input}}",
            "headers": {"X-Auth": "${{ EVAL_CANARY }}", "X-Auth-Token": "lit3ral-" + BODY},
            "body": {"deep": [{"key": "${{ EVAL_CANARY }}"}], "input": "{input}"},
        },
        {
            "name": "lost",
            "provider": "http",
            "url": f"{server}/fail?key=${{{{ EVAL_CANARY }}}}",
            "body": "the body has ${{ EVAL_BODY }}",
        },
        {
            "name": "model",
            "provider": "openai",
            "model": "m",
            "base_url": f"{server}/v1",
            "api_key": "${{ OPENAI_API_KEY }}",
        },
        {"name": "echo", "provider": "echo"},
    ]
    checked = [
        {"type": "contains", "value": "${{ EVAL_CANARY }}"},
        {"type": "python", "value": "leaky:checks"},
    ]
    tests = [
        {
            "id": target["name"],
            "execution": {"target": target["name"]},
            "input": "say ${{ EVAL_CANARY }}",
            "metadata": {"note": "${{ EVAL_CANARY }}"},
            "assertions": checked[:1],
        }
        for target in targets
    ]
    suite = {"name": "canary", "targets": targets, "tests": tests}
    path = folder / "canary.eval.yaml"
    path.write_text(json.dumps(suite))
    return path


def _spellings(secret: str) -> set[bytes]:
    data = secret.encode()
    inner = {base64.b64encode(b"u:" + data)[4:-4], base64.b64encode(data)[:-4]}
    return {data, quote(secret, safe="").encode(), json.dumps(secret)[1:-1].encode()} | inner


def _all_bytes(folder: Path) -> Iterator[tuple[str, bytes]]:
    import duckdb

    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        yield str(path), data
        if data[:4] == b"\x28\xb5\x2f\xfd":
            yield str(path), zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 24)
        if path.suffix == ".parquet":
            rows = duckdb.sql(f"SELECT row::VARCHAR FROM '{path}' AS row").fetchall()
            yield str(path), repr(rows).encode() + "".join(str(row[0]) for row in rows).encode()


def _leaks(*texts: tuple[str, bytes]) -> list[str]:
    return [
        f"{place}: {spelling!r}"
        for place, data in texts
        for secret in (CANARY, OTHER, BODY)
        for spelling in _spellings(secret)
        if spelling in data
    ]


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    return environment(
        tmp_path / "store",
        EVAL_CANARY=CANARY,
        EVAL_BODY=BODY,
        OPENAI_API_KEY=OTHER,
        EVALCORE_LOG="json",
        EVALCORE_LOG_LEVEL="debug",
    )


@pytest.mark.parametrize("mode", ["live", "record"])
def test_no_secret_is_left_anywhere(
    tmp_path: Path, server: str, surroundings: dict[str, str], mode: str
) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    (tmp_path / "store").mkdir()
    suite = _suite(folder, server)
    ended = evalcore(
        "run", suite, "--mode", mode, "--json", "--report", "html,junit,markdown,github",
        "--export", tmp_path / "store" / "rows.csv", "--export", tmp_path / "store" / "rows.jsonl",
        cwd=folder, env=surroundings,
    )  # fmt: skip
    assert ended.code in (0, 1), ended.err
    items = {case["id"]: case["items"][0] for case in ended.report["cases"]}
    assert {name for name, item in items.items() if item["status"] == "error"} == {
        "raises",
        "fails",
        "lost",
    }
    assert {n for n, item in items.items() if item["outcome"] == "passed"} >= {"echo", "command"}
    run = ended.report["run"]["id"]
    shown = [ended, evalcore("report", run, "-v", cwd=folder, env=surroundings)]
    if mode == "live":
        shown.append(evalcore("plan", suite, "--json", cwd=folder, env=surroundings))
    printed = [(str(n), (each.out + each.err).encode()) for n, each in enumerate(shown)]
    assert _leaks(*printed, *_all_bytes(tmp_path / "store")) == []
    if mode == "record":
        again = evalcore("run", suite, "--mode", "replay", "--json", cwd=folder, env=surroundings)
        replayed = {case["id"]: case for case in again.report["cases"]}
        for name in ("web", "model"):
            item = replayed[name]["items"][0]
            assert (item["status"], item["error"]) == ("completed", None)
        assert _leaks(("replay", (again.out + again.err).encode())) == []


WORKFLOW = """
blocks:
  send:
    type: http
    method: POST
    url: "{server}/x?token=${{{{ EVAL_CANARY }}}}&q={{topic}}"
    headers: {{X-Anything: "${{{{ EVAL_CANARY }}}}", X-Api-Key: "${{{{ OPENAI_API_KEY }}}}"}}
    body: {{inner: ["${{{{ EVAL_BODY }}}}", "{{topic}}"]}}
workflow: {{entry: send}}
eval:
  cases:
    - id: c
      inputs: {{topic: "a & b"}}
      expected:
        send:
          - {{type: contains, value: "a & b"}}
          - {{type: contains, value: "{digest}"}}
"""


@pytest.mark.parametrize("workers", ["2"])
def test_http_blocks_read_variables_and_leave_none(
    tmp_path: Path, server: str, surroundings: dict[str, str], workers: str
) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    suite = folder / "call.yaml"
    suite.write_text(WORKFLOW.format(server=server, digest=_digest(CANARY)))
    ended = evalcore(
        "run", suite, "--mode", "record", "--workers", workers, "--json",
        cwd=folder, env=surroundings,
    )  # fmt: skip
    assert ended.code == 0, ended.err + ended.out
    bare = {name: value for name, value in surroundings.items() if name != "OPENAI_API_KEY"}
    again = evalcore("run", suite, "--mode", "replay", "--json", cwd=folder, env=bare)
    assert again.report["cases"] == ended.report["cases"]
    printed = [("out", (each.out + each.err).encode()) for each in (ended, again)]
    assert _leaks(*printed, *_all_bytes(tmp_path / "store")) == []


def test_a_mistake_in_a_file_shows_no_key_that_stands_there(tmp_path: Path) -> None:
    suite = tmp_path / "broken.eval.yaml"
    suite.write_text(
        "tests: []\ntargets:\n  - {name: a, provider: openai, modle: m, api_key: lit3ral-key-99}\n"
        "  - name: b\n    headers: {Authorization: lit3ral-key-99: x}\n"
    )
    ended = evalcore("validate", suite, "--json", store=tmp_path / "store")
    assert ended.code == 2
    assert "lit3ral-key-99" not in ended.out + ended.err
