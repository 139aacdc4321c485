"""The same judges and embeddings in workflow files and suites (docs/reference/graders.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.judged import judge, reply, run
from tests.support.model_server import ModelServer, model_server
from tests.support.model_wire import Question
from tests.support.shell import Json, evalcore


def workflow(tmp_path: Path, *assertions: Json) -> Path:
    cases = [{"id": "a", "fixtures": {"b": "the cat sat"}, "expected": {"b": list(assertions)}}]
    path = tmp_path / "w.yaml"
    path.write_text(json.dumps({"eval": {"cases": cases}}))
    return path


def assertions_of(path: Path) -> list[Json]:
    ended = run(path)
    assert ended.out, ended.err
    found: list[Json] = ended.report["cases"][0]["items"][0]["assertions"]
    return found


def by_model(question: Question) -> str:
    return reply(0.9 if question.model == "good" else 0.2)


CONFIGS: list[tuple[Json, float]] = [
    ({"rubric": "kind"}, 0.2),
    ({"rubric": "kind", "judge": "other"}, 0.9),
    ({"rubric": "kind", "judge": {"provider": "judge", "model": "good"}}, 0.9),
    ({"rubric": "kind", "judge": {"name": "judge", "model": "good"}}, 0.9),
    ({"rubric": "kind", "judges": ["judge", "other"]}, 0.55),
]


def test_llm_judge_asks_the_judge_that_it_names(tmp_path: Path) -> None:
    with model_server(script=by_model) as server:
        targets = [judge(server, model="poor"), judge(server, "other", model="good")]
        (tmp_path / "targets.yaml").write_text(json.dumps(targets))
        judged = [{"type": "llm_judge", "config": config} for config, _ in CONFIGS]
        found = assertions_of(workflow(tmp_path, *judged))
        assert all("kind" in each.body["messages"][1]["content"] for each in server.requests)

    assert [one["score"] for one in found] == pytest.approx([score for _, score in CONFIGS])


def test_llm_judge_passes_from_its_threshold_on_and_is_negated(tmp_path: Path) -> None:
    config = {"rubric": "kind"}
    with model_server(script=lambda _: reply(0.6)) as server:
        (tmp_path / "targets.yaml").write_text(json.dumps([judge(server)]))
        low, high, negated = assertions_of(
            workflow(
                tmp_path,
                {"type": "llm_judge", "config": config, "threshold": 0.5},
                {"type": "llm_judge", "config": config},
                {"type": "not-llm_judge", "config": config},
            )
        )
    assert (low["outcome"], high["outcome"], negated["outcome"]) == ("passed", "failed", "passed")
    assert negated["score"] == pytest.approx(0.4)


def test_similar_in_a_workflow_file(tmp_path: Path) -> None:
    with model_server() as server:
        (tmp_path / "targets.yaml").write_text(json.dumps([judge(server, "embeddings")]))
        same, other = assertions_of(
            workflow(
                tmp_path,
                {"type": "similar", "value": "sat the cat"},
                {"type": "not-similar", "value": "dogs bark"},
            )
        )
    assert (same["score"], same["outcome"], other["outcome"]) == (1.0, "passed", "passed")


def test_a_wrong_llm_judge_is_a_load_error(tmp_path: Path) -> None:
    wrong: list[tuple[Json, str]] = [
        ({"rubrics": "kind"}, "unknown key 'rubrics'. Did you mean 'rubric'?"),
        ({}, "needs a rubric"),
        ({"rubric": "kind", "judge": "nobody"}, "unknown target 'nobody'"),
        ({"rubric": "kind", "votes": 0}, "config.votes: must be at least 1"),
        ({"rubric": [{"id": "a"}]}, "'outcome' is required"),
    ]
    path = workflow(tmp_path, *({"type": "llm_judge", "config": config} for config, _ in wrong))
    ended = evalcore("validate", path.name, cwd=tmp_path)
    assert ended.code == 2
    for number, (_, message) in enumerate(wrong):
        (line,) = (line for line in ended.err.splitlines() if f".b[{number}]" in line)
        assert message in line


def suite(tmp_path: Path, server: ModelServer, **more: Any) -> Path:
    text: Json = {
        "name": "s",
        "flow": "echo",
        "targets": [{"name": "echo", "provider": "echo"}, judge(server)],
        "variants": [{"id": "v"}],
        "cases": [{"id": "a", "input": "hello", "expected_output": "hello", "assertions": [
            {"type": "llm_judge", "criteria": "kind", "min_score": 0.7}]}],
        **more,
    }  # fmt: skip
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps(text))
    return path


def test_llm_judge_in_a_suite(tmp_path: Path) -> None:
    with model_server(script=lambda _: reply(0.75)) as server:
        (found,) = assertions_of(suite(tmp_path, server))
    assert (found["score"], found["outcome"]) == (0.75, "passed")


def test_the_judge_scorer_and_the_embedding_scorer_are_real(tmp_path: Path) -> None:
    scorers = [
        {"scorer": "llm_judge", "criteria": "kind"},
        {"scorer": "embedding", "judge": "judge"},
    ]
    with model_server(script=lambda _: reply(0.75)) as server:
        path = suite(tmp_path, server, scorers=scorers)
        report = run(path).report
    scores = {one["name"]: one for one in report["cases"][0]["items"][0]["scores"]}

    assert (scores["llm_judge"]["value"], scores["embedding"]["value"]) == (0.75, pytest.approx(1))
    assert scores["llm_judge"]["error"] is None
