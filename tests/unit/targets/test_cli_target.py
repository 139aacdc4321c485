from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.model.target import DEFAULT_VARIANT, Target
from evalcore.targets.program import read_answer
from evalcore.targets.registry import build
from evalcore.targets.work import Work, messages_of, prompt_of
from evalcore.trust.imports import ImportPolicy

NASTY = "a'b\"c $(touch pwned) `touch pwned`; touch pwned #\\ {PROMPT} *\nEOF"
CALL = {"tool": "search", "input": {"q": "refund"}, "output": "3 hits"}


def work_on(folder: Path, case_input: Any, case_id: str = "case one") -> Work:
    messages = messages_of(case_input)
    case = Case(case_id, case_input)
    prompt = prompt_of(messages)
    return Work(case, DEFAULT_VARIANT, 0, 0, prompt, messages, folder, ImportPolicy(), 30)


def answer(folder: Path, command: str, case_input: Any = "hi", **more: Any) -> Evidence:
    target = build(Target("t", "cli", {"command": command, **more}))
    return asyncio.run(target.answer(work_on(folder, case_input)))


@pytest.mark.parametrize(
    "command",
    [
        "printf %s {PROMPT} > {OUTPUT_FILE}",
        "printf %s \"{PROMPT}\" > '{OUTPUT_FILE}'",
        "cat {PROMPT_FILE}",
    ],
)
def test_the_prompt_reaches_the_program_unharmed(tmp_path: Path, command: str) -> None:
    assert answer(tmp_path, command, NASTY).output == NASTY
    assert list(tmp_path.iterdir()) == []


def test_several_messages_are_one_prompt_with_their_roles(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    output = answer(tmp_path, "cat {PROMPT_FILE}", messages).output
    assert output == "@[System]:\nBe brief.\n\n@[User]:\nWhy?"


def test_attached_files_are_in_the_prompt_and_their_paths_in_files(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("forty-two")
    (tmp_path / "c.txt").write_text("x")
    files = [{"type": "file", "value": name} for name in ("a b.txt", "c.txt", "a b.txt")]
    asked = [{"role": "user", "content": [*files, {"type": "text", "value": "How many?"}]}]
    assert "forty-two\n</file>" in (answer(tmp_path, "cat {PROMPT_FILE}", asked).output or "")
    listed = answer(
        tmp_path, 'printf "[%s]" {FILES} ', asked, files_format="--file {path}={basename}"
    )
    first, second = tmp_path / "a b.txt", tmp_path / "c.txt"
    expected = f"[--file][{first}=a b.txt][--file][{second}=c.txt]"
    assert listed.output == expected


@pytest.mark.parametrize(
    ("written", "output", "messages"),
    [
        ({"text": "Yes."}, "Yes.", None),
        (
            {"output": [{"role": "assistant", "tool_calls": [CALL]},
                        {"role": "assistant", "content": "Yes."}]},
            "Yes.",
            2,
        ),
        ({"output_messages": [{"role": "assistant", "content": {"n": 1}}]}, '{"n": 1}', 1),
    ],
    ids=["text", "messages", "older name"],
)  # fmt: skip
def test_json_answers_have_messages_and_measures(
    written: dict[str, Any], output: str, messages: int | None
) -> None:
    measures = {"token_usage": {"input": 7, "output": 5}, "cost_usd": 0.25, "duration_ms": 1800}
    evidence = read_answer(json.dumps({**written, **measures}), 3.0)
    assert evidence.output == output
    assert len(evidence.details.get("messages", ())) == (messages or 0)
    metrics = evidence.metrics
    assert (metrics.input_tokens, metrics.output_tokens) == (7, 5)
    assert (metrics.cost_usd, metrics.latency_ms) == (0.25, 1800)


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        '{"total": 3}',
        '{"output": "no messages"}',
        '{"output": [{"role": "assistant", "tool_calls": [{"name": "no tool"}]}]}',
        "[1]",
    ],
)
def test_an_answer_of_another_shape_is_the_output_as_it_stands(text: str) -> None:
    evidence = read_answer(text, 3.0)
    assert (evidence.output, evidence.metrics.latency_ms) == (text, 3.0)
    assert not evidence.details


@pytest.mark.parametrize(
    ("measures", "mistake"),
    [
        (
            {"token_usage": {"input": "7", "output": 5}},
            "token_usage.input: expected a whole number",
        ),
        ({"token_usage": {"prompt_tokens": 7}}, "token_usage.input: is required"),
        ({"token_usage": [7, 5]}, "token_usage: expected a mapping, got a list"),
        ({"cost_usd": "1"}, "cost_usd: expected a number"),
    ],
)
def test_measures_of_a_wrong_shape_are_told(
    tmp_path: Path, measures: dict[str, Any], mistake: str
) -> None:
    text = json.dumps({"text": "x", **measures})
    evidence = read_answer(text, 3.0)
    assert evidence.output == text
    (warning,) = evidence.details["warnings"]
    assert warning.startswith(f"the answer's {mistake}")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo no key >&2; exit 3", "ended with exit code 3: no key"),
        ("true {OUTPUT_FILE}", "wrote no {OUTPUT_FILE}"),
    ],
)
def test_a_program_that_gives_no_answer_is_an_error(
    tmp_path: Path, command: str, message: str
) -> None:
    with pytest.raises(TargetError, match=message):
        answer(tmp_path, command)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": "run {PROMT}"}, "Did you mean 'PROMPT'"),
        ({"command": "x", "healthcheck": {"timeout_seconds": 1}}, "either 'url' or 'command'"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        build(Target("t", "cli", options))


def test_the_health_check_runs_once_and_its_failure_is_the_error_of_each_item(
    tmp_path: Path,
) -> None:
    check = {"command": "echo asked >> log; echo down >&2; exit 1"}
    target = build(Target("t", "cli", {"command": "echo no", "healthcheck": check}))

    async def two_answers() -> list[Evidence | BaseException]:
        works = [work_on(tmp_path, "hi", name) for name in ("a", "b")]
        return await asyncio.gather(*map(target.answer, works), return_exceptions=True)

    errors = asyncio.run(two_answers())
    assert [getattr(error, "kind", None) for error in errors] == ["healthcheck", "healthcheck"]
    assert "exit code 1: down" in str(errors[0])
    assert (tmp_path / "log").read_text() == "asked\n"
