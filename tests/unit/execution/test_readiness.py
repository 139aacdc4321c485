"""Which servers have to answer before the first item."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import UnreachableServerError, UsageError
from evalcore.execution.readiness import check_ready
from evalcore.suites.define import define_suite
from evalcore.suites.run import run_suite
from tests.unit.formats.loading import load_text, write

AWAY = "provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1'"
KEYLESS = "provider: openai, model: m"
TESTS = "tests: [{id: a, input: b, assertions: [{type: equals, value: b}]}]"


def check(folder: Path, text: str, name: str = "suite.eval.yaml", **options: object) -> None:
    suite = load_text(folder, text, name, **options)
    check_ready(suite.definition, suite.cases, mode="live")


@pytest.mark.parametrize(
    ("first", "fallback", "error"),
    [
        (AWAY, "provider: echo", None),
        (KEYLESS, "provider: echo", None),
        (AWAY, AWAY, UnreachableServerError),
        (KEYLESS, KEYLESS, UsageError),
        (KEYLESS, AWAY, UsageError),
    ],
    ids=["away", "no key", "both away", "no keys", "no key and away"],
)
def test_one_of_a_target_and_its_fallbacks_has_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, fallback: str, error: type | None
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    text = f"""
        targets:
          - {{name: default, {first}, fallback_targets: [second]}}
          - {{name: second, {fallback}}}
        {TESTS}"""
    if error is None:
        check(tmp_path, text)
        return
    with pytest.raises(error):
        check(tmp_path, text)


GATE = "first: {type: gate, soul_ref: %s, eval_key: x}"
PLAIN = "first: {type: llm, soul_ref: %s, prompt_template: hi}"
PARTED = "conditional_transitions: [{from: first, default: second}]"


@pytest.mark.parametrize(
    ("first", "transitions", "stops"),
    [
        (PLAIN % "away", "", True),
        (PLAIN % "near", "transitions: [{from: first, to: second}]", True),
        (PLAIN % "near", PARTED, False),
        (PLAIN % "near", "", False),
    ],
    ids=["the first block", "a block after it", "where the ways part", "never reached"],
)
def test_models_that_each_execution_of_a_workflow_asks_have_to_answer(
    tmp_path: Path, first: str, transitions: str, *, stops: bool
) -> None:
    write(tmp_path, {"targets.yaml": f"""
        targets:
          - {{name: far, {AWAY}}}
          - {{name: echo, provider: echo}}"""})  # fmt: skip
    text = f"""
        version: "1.0"
        souls:
          away: {{system_prompt: s, provider: far, model_name: m}}
          near: {{system_prompt: s, provider: echo, model_name: m}}
        blocks:
          {first}
          second: {{type: llm, soul_ref: away, prompt_template: hi}}
        workflow: {{name: w, entry: first, {transitions}}}
        eval: {{cases: [{{id: a, expected: {{first: [{{type: contains, value: hi}}]}}}}]}}
    """
    if not stops:
        check(tmp_path, text, "w.yaml")
        return
    with pytest.raises(UnreachableServerError):
        check(tmp_path, text, "w.yaml")


@pytest.mark.parametrize(
    ("statement", "stops"),
    [
        ("{call: ask, params: {prompt: hi}}", True),
        ("[{eval: 1}, {call: outer}]", True),
        ("{call: ask, params: {prompt: hi}, catch: '*'}", False),
        ("{call: ask, params: {prompt: hi, model_ref: near}}", False),
        ("{if: '${True}', then: {call: ask, params: {prompt: hi}}}", False),
        ("{eval: 1}", False),
    ],
    ids=["asked", "in a tool", "caught", "named by the call", "on a condition", "not asked"],
)
def test_models_that_each_iteration_of_a_script_asks_have_to_answer(
    tmp_path: Path, statement: str, *, stops: bool
) -> None:
    write(tmp_path, {"script.yaml": f"""
        models: [{{name: default, {AWAY}}}, {{name: near, {AWAY}}}]
        shared:
          tools:
            - {{name: ask, import_tool: llm_workers.tools.llm_tool.build_llm_tool}}
            - {{name: outer, do: {{call: ask, params: {{prompt: hi}}}}}}
        """})  # fmt: skip
    text = f"suites: {{s: {{tests: {{t: {{do: {statement}}}}}}}}}"
    options = {"script": str(tmp_path / "script.yaml")}
    if not stops:
        check(tmp_path, text, "s.yaml", **options)
        return
    with pytest.raises(UnreachableServerError):
        check(tmp_path, text, "s.yaml", **options)


def test_a_suite_of_python_is_checked_too(tmp_path: Path) -> None:
    target = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    suite = define_suite(
        name="s", flow=target, variants=[{"id": "v"}],
        cases=[{"id": "a", "input": "b"}],
    )  # fmt: skip

    with pytest.raises(UnreachableServerError):
        run_suite(suite, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()
