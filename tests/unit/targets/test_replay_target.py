"""The target `replay`: what another target answered, from a file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.identity import target_code, target_identity
from evalcore.model.suite import DEFAULT_VARIANT, Case, Target
from evalcore.targets.registry import build
from evalcore.targets.work import Work, messages_of, prompt_of
from evalcore.trust.code_digests import CodeDigests
from evalcore.trust.imports import ImportPolicy
from tests.unit.formats.loading import places_of, problems_of

FILE = "answers.jsonl"
OPTIONS = {"fixtures": FILE, "source_target": "agent"}
CALL = {"tool": "Read", "input": {"path": "a.py"}, "duration_ms": 4}


def record(text: str = "done", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"test_id": "a", "source_target": "agent", "output": [message], **more}


def write_records(folder: Path, *records: dict[str, Any]) -> None:
    (folder / FILE).write_text("\n".join(map(json.dumps, records)))


def answer(folder: Path, case_id: str = "a", iteration: int = 0, **options: Any) -> Evidence:
    target = build(Target("t", "replay", {**OPTIONS, **options}))
    messages = messages_of("hi")
    case = Case(case_id, "hi")
    prompt = prompt_of(messages)
    work = Work(case, DEFAULT_VARIANT, iteration, 0, prompt, messages, folder, ImportPolicy())
    return asyncio.run(target.answer(work))


def test_the_answer_has_its_messages_and_measures(tmp_path: Path) -> None:
    messages = [
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
        {"role": "assistant", "content": "done"},
    ]
    measures: dict[str, Any] = {
        "token_usage": {"input": 9, "output": 2, "cached": 1},
        "cost_usd": 0.5,
    }
    write_records(tmp_path, record(output=messages, duration_ms=980, **measures))
    evidence = answer(tmp_path)

    assert evidence.output == "done"
    assert evidence.details["messages"] == messages
    assert evidence.metrics.latency_ms == 980
    assert evidence.metrics.cost_usd == 0.5
    assert (evidence.metrics.input_tokens, evidence.metrics.output_tokens) == (9, 2)


def test_a_duration_that_was_not_recorded_is_not_measured(tmp_path: Path) -> None:
    write_records(tmp_path, record())

    assert answer(tmp_path).metrics.latency_ms is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"suite": "s"}, "of s", id="suite"),
        pytest.param({"eval_path": "evals/t.eval.yaml"}, "of a file", id="file"),
        pytest.param({"eval_path": "./t.eval.yaml"}, "of a file", id="end of its path"),
        pytest.param({"variant": "v"}, "of a variant", id="variant"),
        pytest.param({"source_target": "other"}, "of another", id="target"),
    ],
)
def test_options_choose_among_the_answers(
    tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    write_records(
        tmp_path,
        record("of s", suite="s"),
        record("of a file", suite="r", eval_path="evals/t.eval.yaml"),
        record("of a variant", variant="v"),
        record("of another", source_target="other"),
    )

    assert answer(tmp_path, **options).output == expected


def test_each_trial_has_its_own_answer(tmp_path: Path) -> None:
    write_records(tmp_path, record("first"), record("second", attempt=1))

    assert [answer(tmp_path, iteration=trial).output for trial in (0, 1)] == ["first", "second"]
    with pytest.raises(TargetError, match="no answer of 'agent' to test 'a' in trial 3"):
        answer(tmp_path, iteration=2)


def test_an_answer_has_to_be_the_only_one(tmp_path: Path) -> None:
    write_records(tmp_path, record(), record(suite="s"))

    with pytest.raises(TargetError, match=r"2 answers to test 'a' \(lines 1, 2\); say which"):
        answer(tmp_path)


def test_a_test_without_an_answer_is_an_error_that_names_near_ones(tmp_path: Path) -> None:
    write_records(tmp_path, record(test_id="refund"))

    with pytest.raises(TargetError, match=r"no answer of 'agent' to test 'refunds'.*'refund'"):
        answer(tmp_path, "refunds")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is no JSON"),
        ("[]", "expected a mapping, got a list"),
        ('{"test_id": "a", "source_target": "agent"}', "output: is required"),
        ('{"test_id": 1, "source_target": "agent", "output": [{}]}', "test_id: expected text"),
        ('{"test_id": "a", "source_target": "agent", "output": [{}]}', "messages with a 'role'"),
        (json.dumps({**record(), "token_usage": {"input": 1}}), "token_usage.output: is required"),
        (json.dumps({**record(), "cost_usd": "1"}), "cost_usd: expected a number"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / FILE).write_text(f"{json.dumps(record())}\n\n{line}\n")

    with pytest.raises(TargetError, match=f"answers.jsonl:3: .*{reason}"):
        answer(tmp_path)


def test_a_missing_file_is_a_mistake_of_the_suite(tmp_path: Path) -> None:
    text = """\
        targets: [{name: default, provider: replay, fixtures: no.jsonl, source_target: agent}]
        tests: [{id: a, input: hi, criteria: c}]
        """
    (problem,) = problems_of(tmp_path, text)

    assert places_of((problem,)) == [(1, "targets[0].fixtures")]
    assert "there is no file 'no.jsonl'" in problem.message


def test_the_content_of_the_file_is_a_part_of_the_target(tmp_path: Path) -> None:
    target = Target("t", "replay", OPTIONS)
    names = list(target_code(target, DEFAULT_VARIANT))
    identities = set()
    for text in ("one", "other"):
        write_records(tmp_path, record(text))
        code = CodeDigests(tmp_path).digests(names)
        identities.add(target_identity(target, DEFAULT_VARIANT, code))

    assert names == [f"file {FILE}"]
    assert len(identities) == 2


def test_a_byte_order_mark_before_the_answers_is_dropped(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(record()), "utf-8-sig")

    assert answer(tmp_path).output == "done"
