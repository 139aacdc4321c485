"""Test files: `execution.targets` as objects, with `use_target` and hooks of the target."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from evalcore.model.identity import target_identity
from evalcore.model.suite import with_target_hooks
from evalcore.workspaces.manager import Surroundings, Workspaces
from tests.unit.formats.loading import cases_of, load_text, problems_of

SUITE = """\
targets: [{name: base, provider: echo}]
workspace:
  hooks:
    before_all: {command: echo W.before_all >> log}
    after_each: {command: echo W.after_each >> log}
    after_all: {command: echo W.after_all >> log}
execution: {targets: [base, %s]}
tests: [{id: a, input: hi, assertions: [{type: is-json}]}]
"""
HOOKS = """{before_all: {command: echo T.before_all >> log},
    before_each: {command: echo T.before_each >> log},
    after_each: {command: echo T.after_each >> log; exit 3},
    after_all: {command: echo T.after_all >> log}}"""
SKILLED = f"{{name: skilled, use_target: base, hooks: {HOOKS}}}"


def test_a_target_as_an_object_is_a_variant_of_its_name(tmp_path: Path) -> None:
    suite = load_text(tmp_path, SUITE % SKILLED).definition

    assert [(each.id, each.target) for each in suite.variants] == [
        ("base", "base"),
        ("skilled", "skilled"),
    ]
    assert suite.targets["skilled"].kind == "echo"
    plain, skilled = (target_identity(suite.targets["base"], each) for each in suite.variants)
    assert plain != skilled


def test_hooks_of_a_target_run_inside_those_of_the_workspace(tmp_path: Path) -> None:
    suite = load_text(tmp_path, SUITE % SKILLED).definition
    case = cases_of(tmp_path, SUITE % SKILLED)["a"]
    warnings: list[str] = []
    surroundings = Surroundings(tmp_path / "root", warn=warnings.append)
    workspaces = Workspaces("run", tmp_path, surroundings)

    async def work() -> None:
        raw = with_target_hooks(case.workspace or {}, suite.variants[1].hooks)
        async with workspaces.entered(case._replace(workspace=raw), "a"):
            (tmp_path / "log").write_text((tmp_path / "log").read_text() + "target\n")

    asyncio.run(work())
    workspaces.close()

    assert (tmp_path / "log").read_text("utf-8").split() == [
        *("W.before_all", "T.before_all", "T.before_each", "target"),
        *("T.after_each", "W.after_each", "T.after_all", "W.after_all"),
    ]
    expected = "workspace: test 'a': the hook after_each of the target ended with exit code 3"
    assert warnings == [expected]


def test_a_chosen_target_keeps_its_hooks(tmp_path: Path) -> None:
    suite = load_text(tmp_path, SUITE % SKILLED, target="skilled").definition

    (variant,) = suite.variants
    assert (variant.id, suite.default_target) == ("default", "skilled")
    assert set(variant.hooks) == {"before_all", "before_each", "after_each", "after_all"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{use_target: base}", "is required"),
        ("{name: b, use_target: bsae}", "unknown target 'bsae'"),
        ("{name: base, hooks: {before_all: {command: x}}}", "'base' is listed twice"),
        ("{name: b, use_target: base, hooks: {before: {command: x}}}", "unknown key 'before'"),
        ("{name: b, use_target: base, hooks: {before_all: {cwd: x}}}", "is required"),
    ],
)
def test_a_wrong_target_as_an_object_is_a_mistake(tmp_path: Path, entry: str, message: str) -> None:
    problems = problems_of(tmp_path, SUITE % entry)

    assert message in "; ".join(problem.message for problem in problems)


def test_a_folder_used_as_it_is_takes_no_hooks_that_prepare_it_for_a_target(tmp_path: Path) -> None:
    text = (SUITE % SKILLED).replace("workspace:\n", "workspace:\n  path: .\n")

    (problem,) = problems_of(tmp_path, text)

    assert problem.path == "execution.targets[1].hooks"
    assert "need a workspace of its own" in problem.message


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        pytest.param(
            SUITE % "{name: b, use_target: base, hooks: {before_each: {command: x}}}",
            "execution.targets[1].hooks: has no effect: hooks run in a workspace",
            id="no workspace",
        ),
        pytest.param(
            (SUITE % "{name: b, use_target: base}")
            .replace("base, p", "b, p")
            .replace("[base, ", "["),
            "execution.targets[0].use_target: has no effect: a target of this name is defined",
            id="a defined name",
        ),
    ],
)
def test_what_a_target_as_an_object_says_without_effect_is_a_warning(
    tmp_path: Path, text: str, warning: str
) -> None:
    head, _, rest = text.partition("workspace:")
    text = head + rest[rest.index("execution:") :]

    (message,) = load_text(tmp_path, text).warnings

    assert message.startswith(warning)


def test_a_default_target_that_is_not_listed_is_not_read(tmp_path: Path) -> None:
    text = """\
        targets: [{name: default, provider: no-such-kind}, {name: mine, provider: echo}]
        execution: {targets: [mine]}
        tests: [{id: a, input: hi, assertions: [{type: equals, value: hi}]}]
        """
    definition = load_text(tmp_path, text).definition

    assert list(definition.targets) == ["mine"]
    assert definition.default_target is None
