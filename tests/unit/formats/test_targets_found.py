"""Where the targets of a suite are defined, and which of them it uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.model.target import Target
from tests.unit.formats.loading import SUITE, load_text, places_of, problems_of, write

TEST = "tests: [{id: a, input: b, assertions: [{type: is-json}]}]"


def target(folder: Path, text: str = "", name: str = SUITE) -> Target:
    definition = load_text(folder, f"{text}\n{TEST}", name).definition
    return definition.targets["default"]


@pytest.mark.parametrize("shape", ["- {}", "targets: [{}]"], ids=["a list", "under targets"])
@pytest.mark.parametrize(
    "name", ["targets.yaml", "targets.yml", "../targets.yaml", ".agentv/targets.yaml"]
)
def test_the_nearest_targets_file_is_read(tmp_path: Path, shape: str, name: str) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    (tmp_path / ".git").mkdir()
    entry = "{name: default, provider: mock, response: x}"
    write(folder, {name: shape.replace("{}", entry)})

    assert target(folder) == Target("default", "mock", {"response": "x"})


def test_a_targets_file_that_others_can_write_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {"targets.yaml": "- {name: default, provider: mock, response: x}"})
    tmp_path.chmod(0o777)
    (warning,) = load_text(
        tmp_path, f"targets: [{{name: default, provider: echo}}]\n{TEST}"
    ).warnings

    assert "targets.yaml is not read" in warning


def test_the_suites_own_targets_win(tmp_path: Path) -> None:
    write(tmp_path, {"targets.yaml": "- {name: default, provider: mock}"})

    assert target(tmp_path, "targets: [{name: default, provider: echo}]").kind == "echo"


def test_mistakes_stand_where_the_target_is_defined(tmp_path: Path) -> None:
    write(tmp_path, {"targets.yaml": "\n- name: default\n  provider: mock\n  respond: x\n"})
    found = problems_of(tmp_path, TEST)

    assert [Path(problem.file).name for problem in found] == ["targets.yaml"] * 2
    assert sorted(places_of(found)) == [(2, "[0].response"), (4, "[0].respond")]


def test_a_target_that_is_not_named_is_not_checked(tmp_path: Path) -> None:
    text = "targets: [{name: default, provider: echo}, {name: b, provider: openai}]"

    assert target(tmp_path, text).kind == "echo"


def test_a_variants_configuration_is_checked_against_its_target(tmp_path: Path) -> None:
    text = f"""\
        targets: [{{name: default, provider: mock, response: x}}]
        evalcore:
          variants:
            - {{id: base}}
            - {{id: slow, config: {{latency_ms: -1}}}}
        {TEST}
        """

    assert places_of(problems_of(tmp_path, text)) == [(5, "evalcore.variants[1].config.latency_ms")]


@pytest.mark.parametrize(
    "targets", ["[{name: default}]", "{default: {provider: echo}}", "[3]"], ids=str
)
def test_misshapen_targets_are_reported_once_and_their_names_not_as_unknown(
    tmp_path: Path, targets: str
) -> None:
    assert len(problems_of(tmp_path, f"targets: {targets}\n{TEST}")) == 1
