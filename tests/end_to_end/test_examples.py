"""Every shipped example gives the report that stands beside it.

After a change that is meant, look at what differs and write the reports anew:
`uv run python -m tests.end_to_end.test_examples`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.shell import ROOT, Ended, Json, comparable, evalcore

EXAMPLES = ROOT / "examples"
EXIT_CODES = {
    "support-answers": 0,
    "extraction": 0,
    "research-workflow": 0,
    "tickets-csv": 1,
    "python-target": 0,
    "code-workflow": 0,
    "route-generator": 0,
    "ticket-scoring": 0,
    "coding-agent": 0,
    "review-nodes": 0,
}

examples = pytest.mark.parametrize("name", EXIT_CODES)


def run_example(name: str, store: Path) -> Ended:
    return evalcore("run", "--json", f"examples/{name}/suite.eval.yaml", store=store)


@examples
def test_an_example_gives_the_report_that_stands_beside_it(name: str, tmp_path: Path) -> None:
    ended = run_example(name, tmp_path)
    expected = json.loads((EXAMPLES / name / "expected-report.json").read_text("utf-8"))
    assert comparable(ended.report) == expected
    assert ended.code == EXIT_CODES[name]


def test_examples_load_without_a_warning() -> None:
    paths = [f"examples/{name}/suite.eval.yaml" for name in EXIT_CODES]
    ended = evalcore("validate", "--strict", *paths)
    assert (ended.code, ended.err) == (0, "")


def test_no_example_is_left_out() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == set(EXIT_CODES)


def test_the_tickets_are_those_that_their_script_writes(tmp_path: Path) -> None:
    script = (EXAMPLES / "tickets-csv" / "make_tickets.py").read_text("utf-8")
    place = tmp_path / "make_tickets.py"
    exec(compile(script, place, "exec"), {"__name__": "__main__", "__file__": str(place)})
    shipped = (EXAMPLES / "tickets-csv" / "tickets.csv").read_bytes()
    assert (tmp_path / "tickets.csv").read_bytes() == shipped


def report_text(report: Json) -> str:
    """Return the report as it stands in `expected-report.json`: one case a line."""
    kept = comparable(report)
    cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in kept.pop("cases"))
    head = json.dumps(kept, ensure_ascii=False, indent=1).removesuffix("\n}")
    return f'{head},\n "cases": [\n{cases}\n ]\n}}\n'


def main() -> int:
    """Write every example's expected report from a run of now."""
    with TemporaryDirectory() as store:
        for name, code in EXIT_CODES.items():
            ended = run_example(name, Path(store))
            if ended.code != code:
                print(f"{name}: exit code {ended.code}, not {code}\n{ended.err}", file=sys.stderr)
                return 1
            text = report_text(ended.report)
            (EXAMPLES / name / "expected-report.json").write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
