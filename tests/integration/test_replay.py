"""A recorded run is repeated without a network and gives the same report, byte for byte."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import (
    UNAUTHORIZED,
    Failure,
    ModelServer,
    model_server,
)
from tests.support.model_wire import Answer, Question
from tests.support.shell import Ended, Json, environment, evalcore

KEY = "sk-of-the-tests-123456"

# What would leave the process is written down and refused.
BLOCK = """\
import os, socket

def refused(*arguments, **_):
    with open(os.environ["CONNECTIONS"], "a") as file:
        file.write(f"{arguments[1:]}\\n")
    raise OSError("no network in this test")

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refused)
for name in ("create_connection", "getaddrinfo", "gethostbyname"):
    setattr(socket, name, refused)
"""


class Numbered:
    """Answers with the number of the request, so that no two answers are equal."""

    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self, question: Question) -> str | Answer | Failure:
        if "impossible" in question.text:
            return Failure(400, message=f"failure {next(self._numbers)} of {KEY}")
        if "forbidden" in question.text:
            return UNAUTHORIZED
        words = " ".join(f"w{number}" for number in range(5))
        return f"answer {next(self._numbers)}: {words} 🚚\u2028 for {KEY}"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    # No answer is within the 5 ms that its cases ask for: reports leave out outputs that passed.
    with model_server(script=Numbered(), latency_s=0.01) as server:
        yield server


@pytest.fixture
def offline(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process that cannot open a connection."""
    folder = tmp_path / "no-network"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCK)
    return {"PYTHONPATH": str(folder), "CONNECTIONS": str(tmp_path / "connections")}


def suite(tmp_path: Path, server: ModelServer, *, provider: str = "openai", **config: Any) -> Path:
    """Return a suite of six cases, three times each; two of them fail."""
    target = {
        "name": "model",
        "provider": provider,
        "base_url": server.base_url,
        "model": "small",
        "api_key": "${{ MODEL_KEY }}",
        **config,
    }
    inputs = ["one", "two", "three", "impossible", "one", "forbidden"]
    tests = [
        {
            "id": f"case-{number}",
            "input": text,
            "assertions": [
                {"type": "contains", "value": "answer"},
                {"type": "regex", "value": "[02468]:"},
                {
                    "type": "latency",
                    "threshold": 0.01,
                },  # never: outputs of items that pass are not kept
            ],
        }
        for number, text in enumerate(inputs)
    ]
    path = tmp_path / "suite.json"
    whole = {
        "name": "recorded",
        "execution": {"target": "model"},
        "targets": [target],
        "evalcore": {"iterations": 3, "errors": "exclude", "max_error_share": 0.5},
        "tests": tests,
    }
    path.write_text(json.dumps(whole))
    return path


def run(path: Path, store: Path, mode: str, env: Mapping[str, str] | None = None) -> Ended:
    return evalcore("run", "--json", "--mode", mode, path, store=store, cwd=path.parent, env=env)


def same(text: str) -> bytes:
    """Return a report without the block `run`, as text."""
    report: Json = json.loads(text)
    del report["run"]
    return json.dumps(report, ensure_ascii=False).encode()


WITH_KEY = {"MODEL_KEY": KEY, "EVALCORE_READABLE_NAMES": "MODEL_KEY"}
WITHOUT_KEY = {"EVALCORE_READABLE_NAMES": "MODEL_KEY"}


def record(path: Path, store: Path) -> Ended:
    recorded = run(path, store, "record", WITH_KEY)
    counts = recorded.report["counts"]
    assert (counts["completed"], counts["error"]) == (12, 6), recorded.err
    return recorded


@pytest.mark.parametrize(
    ("provider", "config"),
    [("openai", {}), ("openai", {"stream": True}), ("anthropic", {"max_tokens": 50})],
    ids=["openai", "streamed", "anthropic"],
)
def test_a_replay_opens_no_connection_and_gives_the_same_report(
    tmp_path: Path,
    server: ModelServer,
    offline: dict[str, str],
    provider: str,
    config: dict[str, Any],
) -> None:
    path, store = suite(tmp_path, server, provider=provider, **config), tmp_path / "store"
    recorded = record(path, store)
    asked = server.stats().requests
    replays = [run(path, store, "replay", offline | WITHOUT_KEY) for _ in range(2)]
    for replayed in replays:
        assert same(replayed.out) == same(recorded.out), replayed.err
        assert replayed.code == recorded.code
        assert replayed.report["run"]["mode"] == "replay"
    assert not Path(offline["CONNECTIONS"]).exists()
    assert server.stats().requests == asked


def test_a_connection_in_such_a_process_would_be_seen(
    server: ModelServer, offline: dict[str, str]
) -> None:
    program = f"import urllib.request; urllib.request.urlopen({server.url!r})"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(**offline),
        check=False,
        capture_output=True,
    )
    assert ended.returncode != 0
    assert Path(offline["CONNECTIONS"]).read_text()
    assert server.stats().requests == 0


def test_a_streamed_answer_is_recorded_with_its_events(tmp_path: Path, server: ModelServer) -> None:
    path, store = suite(tmp_path, server, stream=True), tmp_path / "store"
    record(path, store)
    evalcore("recordings", "export", tmp_path / "set", store=store)
    files = (json.loads(file.read_text("utf-8")) for file in (tmp_path / "set").iterdir())
    streams = [file["reply"]["events"] for file in files if "reply" in file]
    assert len(streams) == 12
    for events in streams:
        assert [event["sequence"] for event in events] == list(range(len(events)))
        offsets = [event["offset_ms"] for event in events]
        assert offsets == sorted(offsets)


def test_cases_and_variants_with_one_prompt_keep_their_own_answers(
    tmp_path: Path, server: ModelServer
) -> None:
    path = suite(tmp_path, server)
    whole = json.loads(path.read_text())
    whole["evalcore"] = {"variants": [{"id": "a"}, {"id": "b"}], "gates": []}
    whole["tests"] = [
        {"id": name, "input": "the same", "assertions": [{"type": "contains", "value": "answer"}]}
        for name in ("one", "two", "three")
    ]
    path.write_text(json.dumps(whole))
    store = tmp_path / "store"
    recorded = run(path, store, "record", WITH_KEY)

    def outputs(ended: Ended) -> list[str]:
        cases = ended.report["cases"]
        return [json.dumps([item.get("output") for item in case["items"]]) for case in cases]

    replayed = run(path, store, "replay", WITH_KEY)
    moved = tmp_path / "moved"
    evalcore("recordings", "export", tmp_path / "files", store=store)
    evalcore("recordings", "import", tmp_path / "files", store=moved)

    assert same(replayed.out) == same(recorded.out)
    assert outputs(run(path, moved, "replay", WITH_KEY)) == outputs(recorded)
    calls = server.stats().requests
    assert calls == 6
    files = [path.read_text("utf-8") for path in (tmp_path / "files").glob("*.json")]
    texts = {json.loads(text)["reply"]["text"].partition(":")[0] for text in files}
    assert texts == {f"answer {number}" for number in range(calls)}


def test_a_missing_recording_is_an_error_of_its_item_and_never_a_call(
    tmp_path: Path, server: ModelServer, offline: dict[str, str]
) -> None:
    path, store = suite(tmp_path, server), tmp_path / "store"
    record(path, store)
    path.write_text(path.read_text().replace('"two"', '"too"'))
    replayed = run(path, store, "replay", offline | WITHOUT_KEY)
    items = {case["id"]: case["items"] for case in replayed.report["cases"]}
    for item in items["case-1"]:
        assert item["status"] == "error"
        assert item["error"]["kind"] == "recording"
        assert 'messages[0].content at character 2 ("two" → "too")' in item["error"]["message"]
    assert items["case-0"][0]["status"] == "completed"
    assert not Path(offline["CONNECTIONS"]).exists()


def test_recordings_are_listed_shown_and_deleted_by_the_first_digits_of_their_keys(
    tmp_path: Path, server: ModelServer
) -> None:
    path, store = suite(tmp_path, server), tmp_path / "store"
    recorded = evalcore("record", "--json", path, store=store, env=WITH_KEY)
    assert recorded.report["run"]["mode"] == "record"
    listed = json.loads(evalcore("recordings", "list", "--json", store=store).out)
    assert len(listed) == 18
    assert {one["iteration"] for one in listed} == {0, 1, 2}
    shown = evalcore("recordings", "show", listed[0]["key"][:10], store=store)
    assert json.loads(shown.out)["key"] == listed[0]["key"]
    missing = evalcore("recordings", "show", "0123456789", store=store)
    assert (missing.code, "no recording begins with '0123456789'" in missing.err) == (2, True)
    keys = [one["key"] for one in listed if one["asked"] == "two"]
    deleted = evalcore("recordings", "delete", *(key[:16] for key in keys), store=store)
    assert "3 recordings deleted" in deleted.out
    asked = server.stats().requests
    run(path, store, "auto", WITH_KEY)
    assert server.stats().requests == asked + 3


def test_resuming_takes_no_mode(tmp_path: Path) -> None:
    refused = evalcore(
        "run", "--resume", "20260518T100000Z-0a1b2c", "--mode", "replay", store=tmp_path
    )
    assert refused.code == 2
    assert "--resume takes no --mode" in refused.err
