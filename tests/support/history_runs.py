"""Small runs of real suites in a store, for what looks back over them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.mode import Mode
from evalcore.pipeline.finish import evaluate
from evalcore.pipeline.plan import PlanOptions
from evalcore.storage.store import ObjectStore


def run_outputs(
    store: ObjectStore,
    folder: Path,
    outputs: Mapping[str, str],
    *,
    name: str = "support",
    iterations: int = 1,
) -> str:
    """Evaluate a suite whose cases give these outputs and pass with 'good'; return the run's id."""
    tests = [
        {
            "id": case,
            "input": case,
            "fixtures": {"output": output, "metrics": {"latency_ms": 10.0, "cost_usd": 0.01}},
            "assertions": [{"type": "contains", "value": "good"}],
        }
        for case, output in outputs.items()
    ]
    path = folder / "history.eval.yaml"
    path.write_text(yaml.safe_dump({"name": name, "tests": tests}), "utf-8")
    suite = load_suite(path, LoadOptions(iterations=iterations))
    with evaluate(suite, store, plan_options=PlanOptions(mode=Mode.LIVE)) as view:
        return view.run.run_id
