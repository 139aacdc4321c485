"""What people are asked in script suites and saved evals, from waiting to decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.shell import Ended, evalcore

SCRIPT = """
suites:
  letters:
    tests:
      refund:
        evalcore:
          human: [{question: Polite?, labels: [yes, no], expected: yes, of: answer}]
        do:
          - {eval: "The refund is on its way.", store_as: answer}
          - {eval: "${0.75 if 'refund' in answer else 0.0}"}
"""
EVALS = """
workflow:
  version: "1.0"
  blocks:
    total:
      type: code
      inputs: {invoice: {from: workflow.invoice}}
      code: |
        def main(data):
            return {"total": 5, "note": "Thank you."}
  workflow: {name: invoices, entry: total, transitions: [{from: total, to: null}]}
evals:
  - name: small
    target: {type: block, block_id: total}
    source: {type: manual, handle_inputs: {input-json-0: {type: json, data: 1}}}
    assertion:
      target: {output_handle_id: output-json-0, path: total}
      condition: {kind: equals, expected: 5}
    evalcore:
      human:
        - {question: Polite?, labels: [yes, no], expected: yes,
           target: {output_handle_id: output-json-0, path: note}}
"""


@pytest.mark.parametrize(
    ("text", "case", "judged"),
    [
        pytest.param(SCRIPT, "letters/refund", "The refund is on its way.", id="script-suite"),
        pytest.param(EVALS, "small", "Thank you.", id="saved-evals"),
    ],
)
def test_a_format_without_assertions_waits_for_people_and_is_decided_again(
    tmp_path: Path, text: str, case: str, judged: str
) -> None:
    suite = tmp_path / "asked.yaml"
    suite.write_text(text, "utf-8")

    def command(*arguments: str | Path, stdin: str = "") -> Ended:
        return evalcore(*arguments, store=tmp_path / "store", cwd=tmp_path, stdin=stdin)

    waiting = command("run", suite, "--json")
    assert waiting.code == 3
    assert waiting.report["awaiting"] == {"labels": 1, "items": 1}
    assert judged in command("annotate", "latest", "--as", "ann", stdin="q\n").out

    row = {"run": "latest", "case": case, "assertion": "human", "label": "no", "annotator": "a"}
    assert command("annotations", "import", "-", stdin=json.dumps(row)).code == 0
    assert command("regrade", "latest").code == 1
    agreed = json.dumps({**row, "label": "yes"})
    assert command("annotations", "import", "-", stdin=agreed).code == 0
    assert command("regrade", "latest").code == 0
    # A new execution has the same output, so nothing is asked again.
    assert command("run", suite).code == 0


def test_people_change_whether_a_script_test_passes_and_not_its_score(tmp_path: Path) -> None:
    suite = tmp_path / "asked.yaml"
    suite.write_text(SCRIPT, "utf-8")

    asked = evalcore("run", suite, store=tmp_path / "store", cwd=tmp_path)
    suite.write_text(SCRIPT.replace("human: [{", "human: []\n          # [{"), "utf-8")
    unasked = evalcore("run", suite, store=tmp_path / "store", cwd=tmp_path)

    assert (asked.code, unasked.code) == (3, 0)
    assert asked.out == unasked.out
    assert "refund: 0.75" in asked.out
