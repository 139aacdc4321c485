"""Assertions that cannot be applied to any output are mistakes, in every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.formats.loading import load_text, problems_of

WORKFLOW = "eval: {cases: [{id: a, fixtures: {d: x}, expected: {d: [%s]}}]}"
TEST = "tests: [{id: a, input: b, fixtures: {output: x}, assertions: [%s]}]"
SUITE = """
    name: s
    flow: 'json:loads'
    cases: [{id: a, fixtures: {output: x}, assertions: [%s]}]
    variants: [{id: v}]
"""
EVALS = """
    workflow:
      workflow: {name: w, entry: d}
      blocks: {d: {type: code, code: 'def main(data): return 1'}}
    evals:
      - name: a
        target: {type: block, block_id: d}
        source: {type: manual, handle_inputs: {input-json-0: {type: json, data: {}}}}
        assertion: {target: {output_handle_id: output-json-0}, condition: %s}
"""
TARGETS = "targets: [{name: e, provider: openai, model: m, api_key: k}]"


def _warnings(folder: Path, text: str) -> str:
    (folder / "targets.yaml").write_text(TARGETS, encoding="utf-8")
    return "\n".join(load_text(folder, text).warnings)


@pytest.mark.parametrize("kind", ["starts_with", "ends_with"])
def test_a_saved_eval_is_warned_of_an_empty_text(tmp_path: Path, kind: str) -> None:
    warning = _warnings(tmp_path, EVALS % f"{{kind: {kind}, expected: ''}}")
    assert "evals[0].assertion.condition" in warning
    assert "can never fail" in warning


@pytest.mark.parametrize(
    "assertion",
    [
        "{type: bleu, value: x, threshold: 1}",
        "{type: not-rouge-n, value: x, threshold: 0.2}",
        "{type: levenshtein, value: x, threshold: 0}",
        "{type: latency, threshold: 0}",
        "{type: word-count, value: 0}",
        "{type: word-count, value: {min: 0, max: 9}}",
    ],
)
def test_bounds_that_an_output_can_miss_are_not_warned_about(
    tmp_path: Path, assertion: str
) -> None:
    assert _warnings(tmp_path, WORKFLOW % assertion) == ""


CANNOT_BE_APPLIED = {
    "pattern": ("{type: regex, value: '(['}", ".value", "invalid pattern '(['"),
    "flags": ("{type: regex, value: x, config: {flags: q}}", ".config.flags", "unknown flag 'q'"),
    "schema": ("{type: is-json, value: {type: strng}}", ".value.type", "invalid JSON Schema"),
    "inner schema": (
        "{type: contains-json, value: {properties: {a: {minimum: x}}}}",
        ".value.properties.a.minimum",
        "invalid JSON Schema: $.properties.a.minimum",
    ),
    "document elsewhere": (
        "{type: is-json, value: {items: {$ref: 'https://example.org/s.json'}}}",
        ".value.items.$ref",
        "refers to 'https://example.org/s.json', which is not in it",
    ),
    "definition that is not there": (
        "{type: is-json, value: {$ref: '#/$defs/a', $defs: {b: {}}}}",
        ".value.$ref",
        "refers to '#/$defs/a', which is not in it",
    ),
    "transform": (
        "{type: equals, value: x, transform: output.a}", ".transform", "unknown transform",
    ),
    "path of a transform": (
        "{type: equals, value: x, transform: 'json_path:$.[['}", ".transform", "malformed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("assertion", "place", "message"), CANNOT_BE_APPLIED.values(), ids=CANNOT_BE_APPLIED
)
@pytest.mark.parametrize("format_", [WORKFLOW, SUITE], ids=["workflow", "suite"])
def test_what_cannot_be_applied_to_any_output_is_a_mistake(
    tmp_path: Path, format_: str, assertion: str, place: str, message: str
) -> None:
    (problem,) = problems_of(tmp_path, format_ % assertion)
    assert problem.path.endswith(f"[0]{place}")
    assert message in problem.message


@pytest.mark.parametrize(
    ("assertion", "place"),
    [
        ("{type: regex, value: '(['}", ".value"),
        ("{type: regex, value: '(?i)x'}", ".value"),
        ("{type: regex, value: x, flags: q}", ".flags"),
        ("{type: composite, assertions: [{type: regex, value: '(['}]}", ".assertions[0].value"),
    ],
)
def test_patterns_of_test_files_are_ecmascripts(tmp_path: Path, assertion: str, place: str) -> None:
    text = f"tests:\n- {{id: a, input: b, fixtures: {{output: x}}, assertions: [{assertion}]}}\n"
    problems = problems_of(tmp_path, text + text.partition("\n")[2].replace("id: a", "id: b"))
    assert [(problem.line, problem.path) for problem in problems] == [
        (number + 2, f"tests[{number}].assertions[0]{place}") for number in (0, 1)
    ]


@pytest.mark.parametrize(
    ("condition", "place"),
    [
        ("{kind: matches_regex, pattern: '('}", ".pattern"),
        (
            "{kind: all_items_match, condition: {kind: matches_regex, pattern: '('}}",
            ".condition.pattern",
        ),
        ("{kind: json_schema_valid, schema: {type: strng}}", ".schema.type"),
        ("{kind: json_schema_valid, schema: {$ref: 'x.json'}}", ".schema.$ref"),
    ],
)
def test_a_condition_that_cannot_be_applied_is_a_mistake(
    tmp_path: Path, condition: str, place: str
) -> None:
    (problem,) = problems_of(tmp_path, EVALS % condition)
    assert problem.path == f"evals[0].assertion.condition{place}"


@pytest.mark.parametrize(
    "schema",
    [
        "{type: object, properties: {a: {$ref: '#/$defs/a'}}, $defs: {a: {type: string}}}",
        "{$id: 'https://a/b', items: {$ref: '#x'}, $defs: {a: {$anchor: x, type: string}}}",
        "{$defs: {n: {type: object, properties: {next: {$ref: '#/$defs/n'}}}}, $ref: '#/$defs/n'}",
        "{$schema: 'http://json-schema.org/draft-07/schema#', dependencies: {a: [b]}}",
    ],
)
def test_a_sound_schema_is_not_warned_about(tmp_path: Path, schema: str) -> None:
    assert _warnings(tmp_path, WORKFLOW % f"{{type: is-json, value: {schema}}}") == ""


def test_a_schema_of_outputs_answers_or_tools_that_is_none_is_a_mistake(tmp_path: Path) -> None:
    model = (
        "targets: [{name: default, provider: openai, model: m, %s}]\n" + TEST % "{type: is-json}"
    )
    texts = {
        "response_schema.type": model % "response_schema: {type: strng}",
        "tools[0].parameters.type": model % "tools: [{name: a, parameters: {type: 3}}]",
        "outputs.a.type": "workflow: {name: w, entry: d}\nblocks: {d: {type: code, "
        "code: 'def main(data): return 1', outputs: {a: {type: strng}}}}\n"
        "eval: {cases: [{id: a, expected: {d: [{type: is-json}]}}]}",
        "outputs.properties.a.type": "workflow: {name: w, entry: d}\nblocks: {d: {type: code, "
        "code: 'def main(data): return 1', outputs: {properties: {a: {type: strng}}}}}\n"
        "eval: {cases: [{id: a, expected: {d: [{type: is-json}]}}]}",
    }
    for place, text in texts.items():
        (problem,) = problems_of(tmp_path, text)
        assert problem.path.endswith(place)
