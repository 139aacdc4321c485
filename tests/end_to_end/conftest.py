"""Small suites, one for each way in which a run can end."""

from __future__ import annotations

from pathlib import Path

import pytest

PASSING = """\
name: passing
tests:
  - id: greeting
    tags: [polite, short]
    input: Say hello.
    fixtures: {output: Hello!, metrics: {latency_ms: 12.5, cost_usd: 0.002, input_tokens: 9}}
    assertions: [{type: contains, value: Hello}, {type: latency, threshold: 20}]
  - id: farewell
    tags: [polite]
    input: Say goodbye.
    fixtures: {output: Goodbye.}
    assertions: [{type: icontains, value: bye, required: true}]
  - id: silence
    input: Say nothing.
    fixtures: {output: ''}
    assertions: [{type: regex, value: ^$}]
"""
FAILING = """\
name: failing
tests:
  - id: wrong
    input: 1 + 1
    fixtures: {output: '3'}
    assertions: [{type: equals, value: '2'}]
"""
ERRORS = """\
name: in-error
execution: {target: broken}
targets: [{name: broken, provider: command, command: [python3, -c, raise SystemExit(3)]}]
evalcore: {gates: [{gate: pass_rate, threshold: 0}]}
tests:
  - id: crash
    input: a
    assertions: [{type: contains, value: a}]
"""
INVALID = """\
tests:
  - id: typo
    input: a
    fixtures: {output: a}
    assertions:
      - type: contian
        value: a
"""
WARNS = """\
tests:
  - id: unused
    input: a
    criteria: polite
    fixtures: {output: a}
    assertions: [{type: contains, value: a}]
"""
TEXTS = {
    "passing": PASSING,
    "failing": FAILING,
    "errors": ERRORS,
    "invalid": INVALID,
    "warns": WARNS,
}


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Suite files by name."""
    folder = tmp_path_factory.mktemp("suites")
    paths = {}
    for name, text in TEXTS.items():
        paths[name] = folder / f"{name}.eval.yaml"
        paths[name].write_text(text, "utf-8")
    return paths


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"
