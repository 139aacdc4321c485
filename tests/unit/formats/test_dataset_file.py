"""Files become cases of a dataset: traces of the OpenTelemetry SDK, JSON lines, tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import Tracer

from evalcore.errors import LoadError, UsageError
from evalcore.formats.single_assertions import read_assertions
from evalcore.formats.traces import read_cases
from tests.support.otlp_files import json_lines, traced

ASKED = [
    {"role": "system", "parts": [{"type": "text", "content": "Be terse."}]},
    {"role": "user", "parts": [{"type": "text", "content": "Weather in Oslo?"}]},
    {
        "role": "assistant",
        "parts": [
            {"type": "reasoning", "content": "hm"},
            {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}},
        ],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "rain"}]},
]
ANSWERED = [
    {
        "role": "assistant",
        "parts": [{"type": "text", "content": "It rains."}],
        "finish_reason": "stop",
    }
]


def newest(tracer: Tracer) -> None:
    """Messages as attributes; one span of another kind is left out."""
    with tracer.start_as_current_span("GET /"), tracer.start_as_current_span("chat m") as span:
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "m",
                "gen_ai.response.model": "m-2026",
                "gen_ai.usage.input_tokens": 12,
                "gen_ai.usage.output_tokens": 3,
                "gen_ai.input.messages": json.dumps(ASKED),
                "gen_ai.output.messages": json.dumps(ANSWERED),
            }
        )


def single(tracer: Tracer) -> None:
    with tracer.start_as_current_span("chat") as span:
        asked = [{"role": "user", "parts": [{"type": "text", "content": "Hi, I am jane@x.org"}]}]
        span.set_attribute("gen_ai.input.messages", json.dumps(asked))
        span.set_attribute(
            "gen_ai.system_instructions", json.dumps([{"type": "text", "content": "Be kind."}])
        )
        span.set_attribute("gen_ai.output.messages", json.dumps(ANSWERED))


def operation_event(tracer: Tracer) -> None:
    with tracer.start_as_current_span("chat") as span:
        span.add_event(
            "gen_ai.client.inference.operation.details",
            {
                "gen_ai.request.model": "m",
                "gen_ai.input.messages": json.dumps([{"role": "user", "content": "Hi"}]),
                "gen_ai.output.messages": json.dumps(ANSWERED),
            },
        )


@pytest.mark.parametrize(
    ("program", "asked", "answered"),
    [
        (operation_event, "Hi", "It rains."),
        (
            single,
            [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "Hi, I am [redacted]"},
            ],
            "It rains.",
        ),
    ],
    ids=["operation event", "instructions"],
)
def test_traces_become_cases(
    tmp_path: Path, program: Callable[[Tracer], None], asked: Any, answered: str
) -> None:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(traced(program), indent=2))
    (case,) = read_cases(path).cases
    assert (case["input"], case["metadata"]["output"]) == (asked, answered)


def test_a_call_has_its_tool_calls_model_and_usage(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text(json_lines(traced(newest), traced(newest), traced(single)))
    imported = read_cases(path, expect_output=True)
    assert imported.repeated == 1
    case, _ = imported.cases
    assert case["input"] == [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Weather in Oslo?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
    ]
    assert case["metadata"] == {
        "operation": "chat",
        "provider": "openai",
        "model": "m-2026",
        "input_tokens": 12,
        "output_tokens": 3,
    }
    assert (case["expected_output"], case["fixtures"]) == ("It rains.", {"output": "It rains."})


def test_every_bad_line_of_traces_is_named(tmp_path: Path) -> None:
    def truncated(tracer: Tracer) -> None:
        with tracer.start_as_current_span("chat") as span:
            span.set_attribute("gen_ai.input.messages", json.dumps(ASKED)[:40])

    path = tmp_path / "traces.jsonl"
    lines = [json.dumps(traced(single)), json.dumps(traced(truncated)), '{"resourceSpans": [',
             '{"resourceSpans": 3}', '{"other": []}', "[]"]  # fmt: skip
    path.write_text("\n".join(lines))
    with pytest.raises(LoadError) as error:
        read_cases(path)
    texts = [str(problem).removeprefix(str(path)) for problem in error.value.problems]
    attribute = "resourceSpans[0].scopeSpans[0].spans[0].attributes.gen_ai.input.messages"
    assert texts[0].startswith(f":2: {attribute}: its messages are not valid JSON")
    assert texts[1].startswith(":3: not valid JSON")
    assert texts[2:5] == [
        ":4: resourceSpans: expected a list, got the number 3",
        ":5: has none of 'resourceSpans', 'resourceLogs', 'resourceMetrics'",
        ":6: expected an object of OTLP JSON, got a list",
    ]


def test_lines_and_rows_become_cases_with_ids_of_their_own_or_derived_ones(tmp_path: Path) -> None:
    lines = tmp_path / "cases.jsonl"
    lines.write_text(
        '{"id": "a", "input": "q", "output": {"n": 1}, "expected_output": "e"}\n'
        '{"input": "me@example.com", "tags": ["t"]}\n{"input": "me@example.com", "tags": ["t"]}\n'
    )
    imported = read_cases(lines)
    first, second = imported.cases
    assert first == {
        "id": "a",
        "input": "q",
        "expected_output": "e",
        "fixtures": {"output": '{"n": 1}'},
    }
    assert (second["input"], imported.repeated) == ("me@example.com", 1)
    assert imported.derived == {second["id"]}
    assert read_cases(lines, redact=True).cases[1]["input"] == "[redacted]"
    table = tmp_path / "cases.csv"
    table.write_text("input,contains,region\nq,x,north\n")
    (row,) = read_cases(table).cases
    assert row["assertions"] == [{"type": "contains", "value": "x"}]
    assert row["metadata"] == {"region": "north"}
    import duckdb

    parquet = tmp_path / "cases.parquet"
    duckdb.execute(f"COPY (FROM '{table}') TO '{parquet}'")
    assert read_cases(parquet).cases == (row,)


def test_every_mistake_of_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(
        '{"id": "a"}\n{"input": 1, "expectd_output": 2}\nnot json\n[]\n'
        '{"input": "x", "assertions": [{"type": "code-grader", "command": "rm"}]}\n'
        '{"id": "b", "input": "1"}\n{"id": "b", "input": "2"}\n'
    )
    with pytest.raises(LoadError) as error:
        read_cases(path)
    lines = [(problem.line, problem.path) for problem in error.value.problems]
    assert lines == [
        (1, "input"),
        (2, "expectd_output"),
        (3, ""),
        (4, ""),
        (5, "assertions[0].type"),
        (7, "id"),
    ]


def test_files_of_other_kinds_and_empty_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.json, \.jsonl, \.csv, \.parquet"):
        read_cases(tmp_path / "cases.xlsx")
    with pytest.raises(LoadError, match="no such file"):
        read_cases(tmp_path / "missing.jsonl")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(LoadError, match="holds no case"):
        read_cases(empty)


def test_assertions_are_checked_before_cases_have_them(tmp_path: Path) -> None:
    path = tmp_path / "assertions.yaml"
    path.write_text("- {type: contains, value: x}\n- {type: is-json}\n")
    assert read_assertions(path) == [{"type": "contains", "value": "x"}, {"type": "is-json"}]
    path.write_text(
        "assertions:\n  - {type: contian, value: x}\n  - {type: contains}\n"
        "  - {type: code-grader, command: rm}\n  - text\n"
    )
    with pytest.raises(LoadError) as error:
        read_assertions(path)
    texts = str(error.value)
    assert "assertions.yaml:2: assertions[0].type: unknown assertion 'contian'. Did you" in texts
    assert "assertions.yaml:3: assertions[1]: value: is required" in texts
    assert "assertions.yaml:4: assertions[2].type: 'code-grader' runs a program" in texts
    assert "assertions.yaml:5: assertions[3]: expected a mapping with 'type'" in texts
