"""Examples of all operations in the OpenAPI document: one story, as the service has told it.

`openapi_examples.json` has the requests and answers; a test sends the requests again and compares
the answers (`tests/integration/test_openapi_examples.py`, which can write the file anew).
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final, TypedDict

import orjson

FILE: Final = "openapi_examples.json"
_JSON: Final = "application/json"


class OperationExample(TypedDict):
    """A request and its answer; `body` and `answer` are null where there is none."""

    parameters: dict[str, Any]
    body: Any
    status: int
    answer: Any


def read_examples() -> dict[str, OperationExample]:
    """Return the examples by the ids of their operations."""
    text = (files("evalcore.service") / FILE).read_bytes()
    examples: dict[str, OperationExample] = orjson.loads(text)
    return examples


def add_examples(document: dict[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI document with an example for each of its operations."""
    examples = read_examples()
    for operations in document["paths"].values():
        for operation in operations.values():
            example = examples.get(operation["operationId"])
            if example is not None:
                _add_example(operation, example)
    return document


def _add_example(operation: dict[str, Any], example: OperationExample) -> None:
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in example["parameters"]:
            parameter["example"] = example["parameters"][parameter["name"]]
    content = operation.get("requestBody", {}).get("content", {})
    if _JSON in content and example["body"] is not None:
        content[_JSON]["example"] = example["body"]
    answered = operation["responses"][str(example["status"])].get("content", {})
    if _JSON in answered:
        answered[_JSON]["example"] = example["answer"]
