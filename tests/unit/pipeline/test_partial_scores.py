"""The score of a part of a suite passes nothing, except in runs that were planned before."""

from __future__ import annotations

from pathlib import Path

import yaml

from evalcore.formats.registry import load_suite
from evalcore.pipeline.finish import evaluate
from evalcore.storage.local import LocalStore

CHECK = {"type": "contains", "value": "good"}
SUITE = {
    "execution": {"target": "broken", "fail_on_error": True},
    "targets": [{"name": "broken", "provider": "command", "command": ["false"]}],
    "tests": [
        {"id": "given", "input": "q", "fixtures": {"output": "good"}, "assertions": [CHECK]},
        {"id": "breaks", "input": "q", "assertions": [CHECK]},
        {"id": "left", "input": "q", "assertions": [CHECK]},
    ],
    "evalcore": {
        "gates": [{"gate": "score_at_least", "threshold": 0.5}],
        "limits": {"concurrency": 1},
    },
}


def test_the_score_of_a_part_of_the_cases_passes_no_gate(tmp_path: Path) -> None:
    path = tmp_path / "part.eval.yaml"
    path.write_text(yaml.safe_dump(SUITE), "utf-8")
    suite = load_suite(path)
    with evaluate(suite, LocalStore(tmp_path / "store")) as view:
        assert view.report.summary.counts.skipped == 1
        assert view.report.summary.score == 0.5
        assert view.report.gates[0].outcome == "inconclusive"
