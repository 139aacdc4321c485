"""The process of a code block: one question on standard input, one answer on standard output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalcore.workflow import code_runner

pytestmark = pytest.mark.multiprocess
ROOT = Path(code_runner.__file__).parents[2]


def run(code: str | None, data: Any = None, **question: Any) -> tuple[dict[str, Any], str]:
    """Return the answer, and what went to standard error."""
    ended = subprocess.run(
        [sys.executable, "-I", code_runner.__file__],
        input=json.dumps({"code": code, "data": data} | question),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer, ended.stderr


def named(reference: str, *roots: Path, allowed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the answer of the function at a reference, given [3, 1, 2]."""
    question = {
        "callable": reference,
        "roots": list(map(str, roots)),
        "allowed": list(allowed),
        "package": str(ROOT),
    }
    return run(None, [3, 1, 2], **question)[0]


def test_the_answer_is_what_main_returns_and_prints_go_to_standard_error() -> None:
    code = (
        "import os, sys, subprocess\n"
        "def main(data):\n"
        "    print('from Python')\n"
        "    os.write(1, b'from the descriptor\\n')\n"
        "    subprocess.run(['echo', 'from a child'])\n"
        "    return {'sum': sum(data), 'stdin': sys.stdin.read(), 'pairs': (1, None)}\n"
    )
    answer, stderr = run(code, [1, 2])
    assert answer == {"returned": {"sum": 3, "stdin": "", "pairs": [1, None]}}
    assert "from the descriptor\n" in stderr
    assert "from a child\n" in stderr


def test_an_async_main_is_awaited() -> None:
    code = "import asyncio\nasync def main(data):\n    await asyncio.sleep(0)\n    return data\n"
    assert run(code, "x")[0] == {"returned": "x"}


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
    answer, _ = run(code)
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
    # In this process: what a value has to be does not depend on where it is looked at.
    answer = code_runner._answer({"code": f"def main(data): return {returned}", "data": None})
    assert answer["kind"] == "output"
    assert reason in answer["error"]


def test_the_largest_and_the_deepest_values_are_returned() -> None:
    value: Any = [2**64 - 1, -(2**63)]
    for _ in range(99):
        value = {"a": value}
    code = "def main(data): return data"
    assert code_runner._answer({"code": code, "data": value}) == {"returned": value}


def test_a_function_is_loaded_by_its_reference_from_the_suite_s_folder(tmp_path: Path) -> None:
    (tmp_path / "ordering.py").write_text("def main(data):\n    return sorted(data)\n", "utf-8")
    assert named("ordering:main", tmp_path) == {"returned": [1, 2, 3]}
    missing = named("ordering:least", tmp_path)
    assert (missing["kind"], missing["retryable"]) == ("import", False)
    assert "least" in missing["error"]
