"""The score of a part of a suite passes nothing, except in runs that were planned before."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.suite import FILE_RULES
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


@pytest.mark.parametrize(("rules", "outcome"), [(2, "pass"), (FILE_RULES, "inconclusive")])
def test_a_run_is_decided_by_the_rules_of_its_time(
    rules: int, outcome: str, tmp_path: Path
) -> None:
    path = tmp_path / "part.eval.yaml"
    path.write_text(yaml.safe_dump(SUITE), "utf-8")
    suite = load_suite(path, LoadOptions(file_rules=rules))
    with evaluate(suite, LocalStore(tmp_path / "store")) as view:
        assert view.report.summary.counts.skipped == 1
        assert view.report.summary.score == 0.5
        assert view.report.gates[0].outcome == outcome
