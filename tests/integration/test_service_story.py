"""The contract of the wire: every operation once, and the service answers as it did."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from tests.support import service_story
from tests.support.service import local_service
from tests.support.service_story import Story, same_each_time, tell_all

STORY = Path(service_story.__file__).with_suffix(".json")
# Answers without JSON.
PLAIN = {"operations_metrics", "files_content", "evals_delete", "workflows_delete"}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    with local_service(tmp_path_factory.mktemp("document"), workers=0) as paused:
        found: Mapping[str, Any] = paused.get("/openapi.json")
        return found


def test_the_service_answers_as_the_story_says(tmp_path: Path, document: Mapping[str, Any]) -> None:
    (tmp_path / "paused").mkdir()
    with (
        local_service(tmp_path) as running,
        local_service(tmp_path / "paused", workers=0) as waiting,
    ):
        story = Story(running, document)
        tell_all(story, Story(waiting, document))
    assert story.untold == set()
    told = same_each_time(story.examples)
    if os.environ.get("EVALCORE_WRITE_EXAMPLES"):
        text = orjson.dumps(told, option=orjson.OPT_INDENT_2).decode()
        STORY.write_text(text + "\n", "utf-8")
    assert told == orjson.loads(STORY.read_bytes())


def test_the_answers_fit_the_openapi_document(document: Mapping[str, Any]) -> None:
    shapes = {"components": document["components"]}
    examples = orjson.loads(STORY.read_bytes())
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            told = examples[operation["operationId"]]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                schema = body["schema"] | shapes
                jsonschema.validate(told["body"], schema)
                name = body["schema"]["$ref"].rpartition("/")[2]
                (example,) = document["components"]["schemas"][name]["examples"]
                jsonschema.validate(example, schema)
            if operation["operationId"] not in PLAIN:
                answer = operation["responses"][str(told["status"])]["content"]["application/json"]
                jsonschema.validate(told["answer"], answer["schema"] | shapes)
            assert operation["summary"], f"{method} {path}"
