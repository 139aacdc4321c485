"""The examples in the OpenAPI document: one for each operation, and the service answers so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

import evalcore.service
from evalcore.service.openapi_examples import FILE, read_examples
from tests.support.openapi_story import Story, same_each_time, tell_all
from tests.support.service import local_service

# Answers without JSON.
PLAIN = {"operations_metrics", "files_content", "evals_delete", "workflows_delete"}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    with local_service(tmp_path_factory.mktemp("document"), workers=0) as paused:
        found: Mapping[str, Any] = paused.get("/openapi.json")
        return found


def test_the_service_answers_as_the_examples_say(
    tmp_path: Path, document: Mapping[str, Any]
) -> None:
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
        (Path(evalcore.service.__path__[0]) / FILE).write_text(text + "\n", "utf-8")
    assert told == read_examples()


def test_every_operation_has_an_example_that_fits_its_schema(document: Mapping[str, Any]) -> None:
    shapes = {"components": document["components"]}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                content = operation["requestBody"]["content"]["application/json"]
                jsonschema.validate(content["example"], content["schema"] | shapes)
            if operation["operationId"] not in PLAIN:
                (answer,) = (
                    response["content"]["application/json"]
                    for status, response in operation["responses"].items()
                    if status.startswith("2")
                )
                jsonschema.validate(answer["example"], answer["schema"] | shapes)
            for parameter in operation.get("parameters", ()):
                assert "example" in parameter or not parameter.get("required"), where
