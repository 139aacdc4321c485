"""`evalcore.evidence` in every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.model.suite import EvidencePolicy
from tests.unit.formats.loading import load_text

SUITES = {
    "test-file": """
        tests: [{id: a, input: x, fixtures: {output: y}, assertions: [{type: contains, value: y}]}]
        """,
    "suite": """
        name: s
        flow: "m:f"
        variants: [{id: v}]
        cases: [{id: a, input: x, fixtures: {b: c}, assertions: [{type: behavior.no_errors}]}]
        """,
    "workflow-harness": """
        eval: {cases: [{id: a, fixtures: {b: c}, expected: {b: [{type: equals, value: c}]}}]}
        """,
    "script-suite": """
        suites: {s: {tests: {a: {do: {eval: 1}}}}}
        """,
    "workflow-evals": """
        workflow:
          version: "1.0"
          blocks: {total: {type: code, code: "def main(data): return {}"}}
          workflow: {name: w, entry: total, transitions: [{from: total, to: null}]}
        evals:
          - name: a
            target: {type: block, block_id: total}
            source: {type: manual, handle_inputs: {input-json-0: {type: json, data: 1}}}
            assertion:
              target: {output_handle_id: output-json-0, path: total}
              condition: {kind: equals, expected: 5}
        """,
}


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("word", list(EvidencePolicy))
def test_each_format_says_what_is_kept(tmp_path: Path, name: str, word: EvidencePolicy) -> None:
    text = f"{SUITES[name]}\n        evalcore: {{evidence: {word}}}\n"
    definition = load_text(tmp_path, text).definition
    assert (definition.format, definition.evidence) == (name, word)


@pytest.mark.parametrize("name", SUITES)
def test_answers_are_kept_by_default(tmp_path: Path, name: str) -> None:
    assert load_text(tmp_path, SUITES[name]).definition.evidence is EvidencePolicy.FULL
