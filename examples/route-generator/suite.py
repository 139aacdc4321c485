"""The suite of suite.eval.yaml in Python: `uv run python examples/route-generator/suite.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from evalcore import define_suite, gates, run_suite, variant

sys.path.insert(0, str(Path(__file__).parent))

from flows import brevity, write_route

suite = define_suite(
    name="route-generator",
    flow=write_route,
    cases=[
        {
            "id": "hello",
            "input": {"route": "hello"},
            "tags": ["smoke"],
            "assertions": [
                {"type": "behavior.no_errors"},
                {"type": "behavior.node_executed", "node_id": "plan"},
                {"type": "output.contains", "path": "outputs.main.code", "value": "app.get"},
                {"type": "metric.latency_ms.max", "value": 1000},
            ],
        },
        {
            "id": "users",
            "input": {"route": "users"},
            "assertions": [
                {
                    "type": "output.matches",
                    "path": "outputs.main.code",
                    "value": r"app\.(get|post)\(",
                },
                {
                    "type": "icontains-all",
                    "path": "outputs.main.code",
                    "value": ["listusers", "app.get"],
                },
            ],
        },
        {
            "id": "given",
            "input": {"route": "hello"},
            "fixtures": {"plan": "nothing to do", "main": {"code": "app.get('/')", "lines": 1}},
            "assertions": [
                {
                    "type": "output.equals",
                    "path": "outputs.main",
                    "value": {"lines": 1.0, "code": "app.get('/')"},
                },
                {"type": "is-json"},
            ],
        },
    ],
    variants=[
        variant("base", model="large"),
        variant("short", model="small", config={"style": "short"}),
    ],
    baseline="base",
    scorers=["latency", {"scorer": "cost", "max": 0.01}, {"callable": brevity}],
    gates=[gates.no_regressions(), gates.pass_rate(0.9), gates.required_cases(["hello"])],
)


def main() -> int:
    """Run the suite, say which gates failed, and return the exit code."""
    report = run_suite(suite)
    for gate in report.gate_results:
        sys.stdout.write(f"{'ok' if gate.passed else 'FAILED'}  {gate.name}: {gate.message}\n")
    sys.stdout.write(f"pass rate {report.summary.pass_rate:.0%}\n")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
