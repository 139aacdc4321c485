"""What the code of a block returns, and how it fails; in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.trust.imports import ImportPolicy
from evalcore.workflow.code import CodeCall, answer_of


def run(code: str, data: Any = None) -> dict[str, Any]:
    return answer_of(CodeCall(code, None, data, ImportPolicy(), Path.cwd()))


@pytest.mark.parametrize(
    ("code", "kind", "message", "retryable"),
    [
        ("x = 1", "code", "the code has no function main(data)", False),
        ("main = 1", "code", "the code has no function main(data)", False),
        ("def main(data:\n", "SyntaxError", "(line 1 of the code)", False),
        (
            "def inner():\n    raise KeyError('a  b')\ndef main(data):\n    inner()\n",
            "KeyError",
            "KeyError: 'a b' (line 2 of the code)",
            True,
        ),
        (
            "import json\ndef main(data):\n    return json.loads('{')\n",
            "JSONDecodeError",
            "(line 3 of the code)",
            True,
        ),
        ("raise SystemExit(3)", "SystemExit", "SystemExit: 3 (line 1 of the code)", True),
        (
            "class Odd(Exception):\n    def __str__(self): return 1 / 0\n"
            "def main(data): raise Odd\n",
            "Odd",
            "Odd (line 3 of the code)",
            True,
        ),
    ],
    ids=["none", "no-function", "syntax", "own", "library", "exit", "no-text"],
)
def test_code_that_fails_names_the_line(
    code: str, kind: str, message: str, retryable: bool
) -> None:
    answer = run(code)
    assert (answer["kind"], answer["retryable"]) == (kind, retryable)
    assert answer["error"].endswith(message)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ("object()", "not JSON serializable"),
        ("float('nan')", "not JSON compliant"),
        ("'\\ud800'", "surrogates not allowed"),
        ("2 ** 64", "an integer of more than 64 bits; return it as text"),
        ("[{'a': -2 ** 63 - 1}]", "an integer of more than 64 bits; return it as text"),
        ("__import__('functools').reduce(lambda v, _: [v], range(101), 1)", "deeper than 100"),
    ],
)
def test_an_output_that_json_cannot_hold_is_an_error_of_kind_output(
    returned: str, reason: str
) -> None:
    answer = run(f"def main(data): return {returned}")
    assert answer["kind"] == "output"
    assert reason in answer["error"]


def test_the_largest_and_the_deepest_values_are_returned() -> None:
    value: Any = [2**64 - 1, -(2**63)]
    for _ in range(99):
        value = {"a": value}
    assert run("def main(data): return data", value) == {"returned": value}
