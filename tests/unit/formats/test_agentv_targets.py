"""Targets as AgentV's files write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.model.exchange import Endpoint
from evalcore.model.target import Target
from tests.unit.formats.loading import load_text, problems_of, write

TEST = "tests: [{id: a, input: b, assertions: [{type: is-json}]}]"
ENV = "RES=https://res.example.com/\nKEY=sk-secret\nMODEL=gpt-4o\nNAME=res\n"


def load(folder: Path, entry: str) -> Any:
    write(folder, {".env": ENV, ".agentv/targets.yaml": f"targets:\n  - {entry}\n"})
    return load_text(folder, TEST)


@pytest.mark.parametrize(
    ("entry", "base_url"),
    [
        ("provider: azure, endpoint: '${{ RES }}', model: m", "${{ RES }}/openai/v1"),
        ("provider: azure, endpoint: 'https://r.example.com/', deployment: m",
         "https://r.example.com/openai/v1"),
        ("provider: azure, endpoint: 'https://r.example.com/openai/v1', model: m",
         "https://r.example.com/openai/v1"),
        ("provider: openai, endpoint: '${{ RES }}', model: m", "${{ RES }}"),
        ("provider: openrouter, model: m", "https://openrouter.ai/api/v1"),
        ("provider: gemini, model: m", "https://generativelanguage.googleapis.com/v1beta/openai"),
    ],
)  # fmt: skip
def test_agentvs_models_are_openai_at_their_address(
    tmp_path: Path, entry: str, base_url: str
) -> None:
    written = f"{{name: default, {entry}, api_key: '${{{{ KEY }}}}', max_output_tokens: 9}}"
    options = {"base_url": base_url, "api_key": "${{ KEY }}", "model": "m", "max_tokens": 9}
    target = load(tmp_path, written).definition.targets["default"]
    assert target == Target("default", "openai", options)


def test_an_address_after_a_value_with_a_slash_has_one_slash() -> None:
    values = {"${{ RES }}": "https://res.example.com/"}
    endpoint = Endpoint("openai", "default", "${{ RES }}/openai/v1", values=values)
    assert endpoint.address == "https://res.example.com/openai/v1"


@pytest.mark.parametrize("key", ["log_format: json", "stream_log: raw", "log_dir: ./logs"])
def test_the_logs_of_agents_have_no_effect_where_the_provider_is_a_model(
    tmp_path: Path, key: str
) -> None:
    entry = f"{{name: default, provider: '${{{{ PROVIDER }}}}', model: m, {key}}}"
    files = {".env": "PROVIDER=openai\n", ".agentv/targets.yaml": f"targets: [{entry}]\n"}
    write(tmp_path, files)
    options = load_text(tmp_path, TEST).definition.targets["default"].options
    assert key.partition(":")[0] not in options


@pytest.mark.parametrize(
    ("entry", "place", "message"),
    [
        ("{name: default, provider: azure, endpoint: '${{ ELSE }}', model: m}",
         "targets[0].endpoint", "may not read the environment variable ELSE"),
        ("{name: default, provider: azure, endpoint: '${{ NAME }}', model: m}",
         "targets[0].base_url", "is no web address"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_over_is_told_at_its_place(
    tmp_path: Path, entry: str, place: str, message: str
) -> None:
    write(tmp_path, {".env": ENV, ".agentv/targets.yaml": f"targets:\n  - {entry}\n"})
    (problem,) = problems_of(tmp_path, TEST)
    assert problem.path == place
    assert message in problem.message


def test_the_older_name_of_the_grader_target_is_read(tmp_path: Path) -> None:
    text = (
        "{name: default, provider: echo, judge_target: strict}\n  - {name: strict, provider: echo}"
    )
    assert set(load(tmp_path, text).definition.targets) == {"default", "strict"}
