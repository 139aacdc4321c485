"""What a suite keeps of its items: answers, the messages of calls, or measures only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalcore.sql.rows import read_item_rows
from tests.support.model_server import SERVER_ERROR, ModelServer, model_server
from tests.support.shell import Ended, evalcore

SECRET = "sk-abcdefghijklmnopqrstuvwx1234"


def write(folder: Path, server: ModelServer, evidence: str | None, **more: Any) -> None:
    document = {
        "name": "kept",
        "targets": [
            {
                "name": "t",
                "provider": "openai",
                "model": "m",
                "base_url": server.base_url,
                "api_key": "${{ MODEL_KEY }}",
            }
        ],
        "execution": {"target": "t"},
        "evalcore": {} if evidence is None else {"evidence": evidence},
        "tests": [
            {
                "id": "x",
                "input": f"the answer is {SECRET} twice",
                "assertions": [
                    {"type": "contains", "value": "answer"},
                    {"type": "contains", "value": "absent"},
                ],
            }
        ],
        **more,
    }
    (folder / ".env").write_text("MODEL_KEY=the-models-own-key\n")
    (folder / "suite.yaml").write_text(json.dumps(document))


def run(folder: Path, *flags: str, command: str = "run") -> Ended:
    named = () if command == "regrade" else ("suite.yaml",)
    return evalcore(command, *named, "--json", *flags, store=folder / "store", cwd=folder)


def stored_texts(folder: Path) -> str:
    """Return everything below the store's runs and blobs that is text, Parquet rows as JSON."""
    store = folder / "store"
    files = [path for path in store.rglob("*") if path.is_file() and "plan" not in path.parts]
    texts = [repr(read_item_rows(path, range(100))) for path in files if path.suffix == ".parquet"
             and "results" in path.parts]  # fmt: skip
    return "".join(texts + [path.read_text() for path in files if path.suffix == ".json"])


def row(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "store").glob("runs/kept/*/results/*.parquet")
    return read_item_rows(path, range(1))[0]


def test_full_evidence_has_the_messages_of_a_live_call_without_secrets(tmp_path: Path) -> None:
    with model_server(failures=[SERVER_ERROR]) as server:
        write(tmp_path, server, "full")
        run(tmp_path)
    (call,) = json.loads(row(tmp_path)["evidence"])["details"]["calls"]
    assert call["request"]["messages"] == [
        {"role": "user", "content": "the answer is [redacted] twice"}
    ]
    assert call["reply"]["text"] == "the answer is [redacted] twice"
    assert call["retries"][0]["kind"] == "server"
    assert call["attempts"] == 2
    assert SECRET not in stored_texts(tmp_path)


def test_a_suite_may_keep_answers_without_messages(tmp_path: Path) -> None:
    with model_server() as server:
        write(tmp_path, server, "answers")
        run(tmp_path)
    stored = row(tmp_path)
    assert stored["output"].startswith("the answer is")
    assert "request" not in stored["evidence"]


def test_a_recorded_call_names_its_recording(tmp_path: Path) -> None:
    with model_server() as server:
        write(tmp_path, server, None)
        run(tmp_path, "--mode", "record")
    (call,) = json.loads(row(tmp_path)["evidence"])["details"]["calls"]
    digest = call["recording"]
    assert "request" in call
    assert (tmp_path / "store" / "recordings" / digest[:2] / digest).is_file()


def test_without_evidence_a_run_is_graded_and_keeps_no_text_of_the_target(tmp_path: Path) -> None:
    with model_server() as server:
        write(tmp_path, server, "none")
        report = json.loads(run(tmp_path).out)
        regraded = run(tmp_path, "latest", command="regrade")
        shown = evalcore("report", "latest", store=tmp_path / "store", cwd=tmp_path)
    (item,) = report["cases"][0]["items"]
    assert [each["outcome"] for each in item["assertions"]] == ["passed", "failed"]
    assert item["metrics"]["input_tokens"] is not None
    assert report["run"]["evidence"] == "none"
    assert "the answer is" not in stored_texts(tmp_path)
    assert "no outputs are kept (evidence: none)" in shown.out
    # Nor can it be graded again.
    assert (regraded.code, regraded.err.count("\n")) == (2, 1)
    assert "kept no outputs (evidence: none)" in regraded.err
    assert len(list((tmp_path / "store" / "runs" / "kept").iterdir())) == 1


def test_nothing_is_reused_of_runs_without_outputs(tmp_path: Path) -> None:
    with model_server() as server:
        write(tmp_path, server, "none")
        run(tmp_path)
        ended = run(tmp_path, "--reuse")
        assert server.stats().requests == 2
    assert ended.err.count("nothing is reused: the earlier runs kept no outputs") == 1


@pytest.mark.parametrize("mode", ["record", "auto"])
def test_a_suite_that_keeps_no_outputs_is_not_recorded(tmp_path: Path, mode: str) -> None:
    with model_server() as server:
        write(tmp_path, server, "none")
        ended = run(tmp_path, "--mode", mode)
        assert server.stats().requests == 0
    assert ended.code == 2
    assert "use mode live" in ended.err
    assert not (tmp_path / "store" / "runs").exists()


def test_people_are_not_asked_about_outputs_that_are_not_kept(tmp_path: Path) -> None:
    human = {"type": "human", "question": "Good?", "labels": ["yes", "no"], "expected": "yes"}
    tests = [{"id": "x", "input": "hello", "assertions": [human]}]
    with model_server() as server:
        write(tmp_path, server, "none", tests=tests)
        report = json.loads(run(tmp_path).out)
    assert report["cases"][0]["items"][0]["assertions"][0]["outcome"] == "error"


def test_an_unknown_word_is_refused_with_the_words_that_there_are(tmp_path: Path) -> None:
    with model_server() as server:
        write(tmp_path, server, "some")
        ended = run(tmp_path)
    assert ended.code == 2
    assert "Known: answers, full, none" in ended.err
