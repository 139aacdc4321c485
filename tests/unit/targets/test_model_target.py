"""The targets `openai` and `anthropic`."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.model.evidence import Metrics
from evalcore.model.exchange import ErrorKind, ProviderError, Reply, Request, SkippedError
from evalcore.model.suite import Case
from evalcore.model.target import Target, Variant
from tests.support.model_server import Failure, ModelServer, by_rules, model_server
from tests.support.model_wire import Answer
from tests.support.target_calls import answer, merge_options, target_of

KINDS = pytest.mark.parametrize("kind", ["openai", "anthropic"])


def model(server: ModelServer, kind: str = "openai", **options: Any) -> Target:
    return target_of(kind, **{"model": "m", "base_url": server.base_url, **options})


@KINDS
def test_the_models_answer_is_the_output_with_its_measures(kind: str) -> None:
    with model_server() as server:
        evidence = answer(model(server, kind, stream=True))

    metrics = evidence.metrics
    assert evidence.output == "hello you"
    assert (metrics.input_tokens, metrics.output_tokens, metrics.cost_usd) == (2, 2, None)
    assert metrics.latency_ms is not None
    assert metrics.ttft_ms is not None
    (call,) = evidence.details["calls"]
    assert call == {
        "provider": "mine",
        "model": "m",
        "block": None,
        "latency_ms": metrics.latency_ms,
        "ttft_ms": metrics.ttft_ms,
        "cost_usd": None,
        "input_tokens": 2,
        "output_tokens": 2,
        "attempts": 1,
        "recorded": False,
        "error": None,
        "finish_reason": {"openai": "stop", "anthropic": "end_turn"}[kind],
        "unpriced": "m",
    }


@KINDS
def test_tool_calls_stand_in_the_evidences_messages(kind: str) -> None:
    given = Answer("", tool_calls=({"name": "f", "arguments": {"x": 1}},))
    with model_server(script=lambda _: given) as server:
        evidence = answer(model(server, kind, tools=[{"name": "f", "parameters": {}}]))

    (message,) = evidence.details["messages"]
    assert message["role"] == "assistant"
    assert [(call["name"], call["arguments"]) for call in message["tool_calls"]] == [
        ("f", {"x": 1})
    ]


def asked(target: Target, case: Case | str = "hello you", **how: Any) -> Request:
    """Return the request that the target makes."""
    requests: list[Request] = []

    async def complete(request: Request) -> Reply:
        requests.append(request)
        return Reply("x", cost_usd=0.5, attempts=3, recorded=True, latency_ms=7.0)

    evidence = answer(target, case, complete=complete, **how)
    assert evidence.metrics == Metrics(latency_ms=7.0, cost_usd=0.5)
    assert evidence.details["calls"][0]["attempts"] == 3
    assert evidence.details["calls"][0]["recorded"] is True
    (request,) = requests
    return request


def test_options_become_the_request() -> None:
    request = asked(
        target_of(
            "openai",
            model="m",
            temperature=0,
            max_tokens=9,
            top_p=0.5,
            seed=4,
            stop=["x"],
            parameters={"logit_bias": {"1": 2}, "seed": 5},
            response_schema={"type": "object"},
            response_format={"type": "json_object"},
            tools=[{"name": "f"}],
            stream=True,
            timeout=7,
            system_prompt="be brief",
        )
    )

    assert request.messages == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello you"},
    )
    assert request.parameters == {
        "temperature": 0,
        "max_tokens": 9,
        "top_p": 0.5,
        "seed": 5,
        "stop": ["x"],
        "logit_bias": {"1": 2},
        "response_format": {"type": "json_object"},
    }
    assert request.response_schema == {"type": "object"}
    assert (request.model, request.stream, request.attempt_timeout_s) == ("m", True, 7)
    assert request.tools == ({"name": "f"},)


def test_a_variants_configuration_may_be_written_in_camel_case() -> None:
    target = target_of("openai", model="m", system_prompt="old", max_tokens=3)
    variant = Variant("v", config={"systemPrompt": "new", "model": "n", "maxTokens": 4})
    request = asked(target, variant=variant)

    assert request.messages[0]["content"] == "new"
    assert (request.model, request.parameters) == ("n", {"max_tokens": 4})


def test_options_of_any_target_are_no_options_of_the_model() -> None:
    target = target_of("mock", response="x", workers=2, grader_target="g", fallback_targets=[])

    assert merge_options(target).model_dump() == {"response": "x", "latency_ms": 0}


@pytest.mark.parametrize(
    ("template", "case_input", "content"),
    [
        ("Q: {prompt}", "why?", "Q: why?"),
        ("{input.a} of {input}", {"a": 1}, '1 of {"a": 1}'),
        ("{input.l.1}{id} {other} {{prompt}}", {"l": [1, "b"]}, 'bc1 {other} {{"l": [1, "b"]}}'),
    ],
)
def test_a_template_takes_the_place_of_the_last_user_message(
    template: str, case_input: Any, content: str
) -> None:
    target = target_of("openai", model="m", prompt_template=template)

    assert asked(target, Case("c1", case_input)).messages == ({"role": "user", "content": content},)


def test_a_template_keeps_the_other_messages() -> None:
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    target = target_of("openai", model="m", prompt_template="<{prompt}>")

    assert [m["content"] for m in asked(target, Case("c", messages)).messages] == [
        "one",
        "two",
        "<three>",
    ]


def test_a_template_that_names_what_is_not_there_says_what_is() -> None:
    target = target_of("openai", model="m", prompt_template="{input.b}")

    with pytest.raises(TargetError, match=r"\{input.b\}: .* has no 'b'; it has a"):
        answer(target, Case("c", {"a": 1}))


def test_files_of_the_input_are_put_into_the_messages(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text")
    (tmp_path / "b.png").write_bytes(b"\x89PNG\xff")
    parts = [
        {"type": "file", "value": "a.txt"},
        {"type": "image", "value": "b.png"},
        {"type": "image", "value": "https://x/c.png"},
        {"type": "text", "value": "see"},
    ]
    case = Case("c", [{"role": "user", "content": parts}])
    request = asked(target_of("openai", model="m"), case, folder=tmp_path)

    data = base64.b64encode(b"\x89PNG\xff").decode()
    assert request.messages[0]["content"] == [
        {"type": "text", "value": '<file name="a.txt">\nsome text\n</file>'},
        {"type": "image", "value": f"data:image/png;base64,{data}"},
        {"type": "image", "value": "https://x/c.png"},
        {"type": "text", "value": "see"},
    ]


@pytest.mark.parametrize("name", ["missing.txt", "../../../etc/hostname"])
def test_a_file_out_of_reach_is_the_items_error(tmp_path: Path, name: str) -> None:
    case = Case("c", [{"role": "user", "content": [{"type": "file", "value": name}]}])

    with pytest.raises(TargetError) as caught:
        answer(target_of("openai", model="m"), case, folder=tmp_path)
    assert caught.value.kind == "input"


@pytest.mark.parametrize(
    ("options", "environment", "url", "key"),
    [
        ({}, {}, "https://api.openai.com/v1", None),
        ({}, {"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1", "k"),
        ({"api_key": "own\n"}, {"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1", "own"),
        ({}, {"OPENAI_BASE_URL": "http://p/v1", "OPENAI_API_KEY": "k"}, "http://p/v1", "k"),
        ({"base_url": "http://localhost:1/v1"}, {"OPENAI_API_KEY": "k"},
         "http://localhost:1/v1", "k"),
        ({"base_url": "https://other/v1"}, {"OPENAI_API_KEY": "k"}, "https://other/v1", None),
        ({"base_url": "https://other/v1", "api_key": "${{ OPENAI_API_KEY }}"},
         {"OPENAI_API_KEY": "k"}, "https://other/v1", "k"),
    ],
    ids=["nothing", "key", "own key", "both", "local", "another's", "another's, told to"],
)  # fmt: skip
def test_address_and_key_come_from_the_environment(
    options: dict[str, Any], environment: dict[str, str], url: str, key: str | None
) -> None:
    endpoint = asked(target_of("openai", model="m", **options), environment=environment).endpoint

    assert (endpoint.base_url, endpoint.api_key, endpoint.provider) == (url, key, "mine")


def test_headers_that_refer_to_variables_are_secret_and_the_others_a_part_of_the_question() -> None:
    headers = {"X-Org": "Bearer ${{ EVAL_ORG }}", "X-Beta": "on"}
    request = asked(
        target_of("openai", model="m", headers=headers), environment={"EVAL_ORG": "hush"}
    )

    assert request.endpoint.headers == {"X-Org": "Bearer hush"}
    assert request.parameters == {"extra_headers": {"X-Beta": "on"}}
    assert "hush" not in str(request)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${{ EVAL_GONE }}", "api_key: the environment variable EVAL_GONE is not set"),
        ("${{ HOME }}", "may not read the environment variable HOME"),
    ],
)
def test_a_missing_secret_is_the_items_error_unless_the_answer_is_replayed(
    text: str, said: str
) -> None:
    target = target_of("openai", model="m", api_key=text)

    with pytest.raises(TargetError, match=f"target 'mine': .*{said}"):
        answer(target, environment={"HOME": "/root"})
    assert asked(target, environment={"HOME": "/root"}, mode="replay").endpoint.api_key is None


def test_a_missing_key_says_which_variable_and_which_target() -> None:
    with pytest.raises(ProviderError, match=r"OPENAI_API_KEY.*'mine'") as caught:
        answer(target_of("openai", model="m"))

    assert caught.value.kind == ErrorKind.AUTHENTICATION


def with_fallbacks(server: ModelServer, *others: Target) -> Target:
    entries = [
        {"name": other.name, "kind": other.kind, "options": other.options} for other in others
    ]
    return model(server, model="broken", fallback_targets=entries)


def test_fallbacks_are_tried_in_their_order_and_the_failures_kept() -> None:
    rules = {"hello": Failure(500)}
    with (
        model_server(script=by_rules(rules)) as server,
        model_server(script=lambda q: f"{q.model} answers") as sound,
    ):
        second = target_of("anthropic", "second", model="m2", base_url=server.base_url)
        third = target_of("openai", "third", model="m3", base_url=sound.base_url)
        evidence = answer(with_fallbacks(server, second, third))

    assert evidence.output == "m3 answers"
    assert [call["provider"] for call in evidence.details["calls"]] == ["mine", "second", "third"]
    assert [call["error"] is None for call in evidence.details["calls"]] == [False, False, True]
    assert [text.split(":")[0] for text in evidence.details["errors"]] == ["mine", "second"]


def test_a_fallback_may_be_of_any_kind() -> None:
    with model_server(script=lambda _: Failure(401)) as server:
        evidence = answer(with_fallbacks(server, target_of("mock", "m", response="sorry")))

    assert evidence.output == "sorry"


def test_where_no_fallback_answers_the_first_error_tells_all() -> None:
    with model_server(script=lambda _: Failure(429)) as server:
        other = target_of("openai", "other", model="m", base_url=server.base_url)
        with pytest.raises(
            ProviderError, match=r"mine at .*; fallback 'other': other at"
        ) as caught:
            answer(with_fallbacks(server, other))

    assert (caught.value.kind, caught.value.status) == (ErrorKind.RATE, 429)


def test_a_limit_is_no_reason_for_a_fallback() -> None:
    async def complete(request: Request) -> Reply:
        raise SkippedError("budget", "nothing is left")

    with model_server() as server, pytest.raises(SkippedError):
        answer(with_fallbacks(server, target_of("mock", "m", response="sorry")), complete=complete)
