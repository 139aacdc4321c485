"""What a suite keeps of its items: answers, or the messages of calls, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_an_unknown_word_is_refused_with_the_words_that_there_are(tmp_path: Path) -> None:
    with model_server() as server:
        write(tmp_path, server, "some")
        ended = run(tmp_path)
    assert ended.code == 2
    assert "Known: answers, full" in ended.err
