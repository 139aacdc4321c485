"""The pages in docs/ speak of everything that there is, and of nothing that there is not."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
from typing_extensions import is_typeddict

from evalcore.checks.registry import Dialect, assertion_types
from evalcore.cli.main import cli
from evalcore.formats import section as shapes
from evalcore.formats import workflow_file as workflow_file_shapes
from evalcore.formats.test_file import cases as test_file_shapes
from evalcore.settings import FILE_NAME, Settings
from evalcore.targets.registry import KINDS, options_model
from tests.support.shell import ROOT, evalcore

REFERENCE = ROOT / "docs/reference"
COMMAND_LINE = (REFERENCE / "command-line.md").read_text("utf-8")
FORMAT_PAGES = (
    "formats",
    "test-files",
    "workflow-files",
    "graders",
    "annotations",
    "suites",
    "targets",
    "workspaces",
    "suite-options",
)
FORMATS = "\n".join((REFERENCE / f"{page}.md").read_text("utf-8") for page in FORMAT_PAGES)

# Blocks are the workflow engine's, of which this version checks no more than the shape.
UNDOCUMENTED_SHAPES = {"_Block", "Soul", "Workflow", "WorkflowFile", "_GateFields"}


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that does something, with its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, f"{path} {name}")


COMMANDS = dict(commands(cli, "evalcore"))


def test_each_command_with_flags_has_the_table_of_them() -> None:
    tabled = {name for name, _ in GENERATED}
    with_flags = {
        path.replace(" ", "-")
        for path, command in COMMANDS.items()
        if any(isinstance(option, click.Option) for option in command.params)
    }
    assert with_flags - tabled == {"evalcore-record"}  # which has those of `run`


def test_help_says_of_an_option_whether_it_is_repeatable() -> None:
    options = [
        (f"{path} {option.opts[-1]}", option.multiple, "repeatable" in (option.help or "").lower())
        for path, command in COMMANDS.items()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    assert [name for name, multiple, says in options if multiple != says] == []


def test_no_command_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"^## `(evalcore .*)`$", COMMAND_LINE, re.MULTILINE)) == set(COMMANDS)


# Tables of the file; the environment has no good way to write them.
ONLY_IN_THE_FILE = {"providers", "prices", "notify"}


def test_every_setting_is_documented() -> None:
    assert FILE_NAME in COMMAND_LINE
    for name in (each.name for each in fields(Settings)):
        variable = "–" if name in ONLY_IN_THE_FILE else f"`EVALCORE_{name.upper()}`"
        assert f"| {variable} | `{name}` |" in COMMAND_LINE


GENERATED = [
    (name, written)
    for page in sorted(REFERENCE.glob("*.md"))
    for name, written in re.findall(
        r"<!-- table: (\S+) -->\n\n(.*?)\n\n<!-- end -->", page.read_text("utf-8"), re.DOTALL
    )
]


@pytest.mark.parametrize(("name", "written"), GENERATED, ids=[name for name, _ in GENERATED])
def test_a_generated_table_is_that_of_the_classes(name: str, written: str) -> None:
    tables = runpy.run_path(str(ROOT / ".ci/tables.py"))["TABLES"]
    assert tables[name]() == written, "run python .ci/tables.py"


def test_the_tables_of_the_pages_are_found() -> None:
    names = {name for name, _ in GENERATED}
    assert names >= {"assertions", "gates", "scorers", "targets", "blocks", "result-columns"}


def typed_dicts(module: Any) -> Iterator[type]:
    for shape in vars(module).values():
        if is_typeddict(shape) and shape.__module__ == module.__name__:
            assert isinstance(shape, type)
            yield shape


def documented_keys() -> Iterator[str]:
    for module in (shapes, test_file_shapes, workflow_file_shapes):
        for shape in typed_dicts(module):
            blocks = shape.__name__.endswith("Block")
            if not blocks and shape.__name__ not in UNDOCUMENTED_SHAPES:
                yield from get_type_hints(shape)


DIALECTS = (Dialect.WORKFLOW, Dialect.TEST, Dialect.SUITE)
TYPES = [kind for dialect in DIALECTS for kind in assertion_types(dialect).values()]


def assertion_keys() -> set[str]:
    return {key for kind in TYPES for key in get_type_hints(kind.shape)}


def test_every_key_of_the_formats_is_documented() -> None:
    words = set(re.findall(r"\w+(?:-\w+)*", " ".join(re.findall(r"`[^`]*`", FORMATS))))
    words |= {part for word in words for part in word.split("-")}
    assert {*documented_keys(), *assertion_keys()} - words == set()


def test_every_assertion_type_is_documented() -> None:
    names = {kind.name for kind in TYPES if kind.dialect is not Dialect.SUITE}
    assert {name for name in names if f"`{name}`" not in FORMATS} == set()


def test_every_target_is_documented_with_its_options() -> None:
    targets = (REFERENCE / "targets.md").read_text("utf-8").partition("\n#")[0].splitlines()
    for kind in KINDS:
        (row,) = [line for line in targets if line.startswith(f"| `{kind}` |")]
        for option in options_model(kind).model_fields:
            assert f"`{option}`" in row


def code_blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


SUITES = [
    (page, block)
    for page in (
        "README.md",
        *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*/*.md"))),
    )
    for block in code_blocks(page, "yaml")
    if re.search(r"^(?:tests|evals?|suites):", block, re.MULTILINE)
    and "dataset:" not in block  # which no store here has
]


def test_every_suite_that_a_page_shows_loads(tmp_path: Path) -> None:
    paths = [
        tmp_path / f"{number}-{Path(page).stem}.yaml" for number, (page, _) in enumerate(SUITES)
    ]
    for path, (_, text) in zip(paths, SUITES, strict=True):
        path.write_text(text, "utf-8")
    (tmp_path / "graders").mkdir()
    (tmp_path / "graders/tone.md").write_text("Is {{output}} calm?", "utf-8")
    (tmp_path / "graders/check.py").write_text("", "utf-8")
    (tmp_path / "judge.py").write_text("", "utf-8")
    (tmp_path / "my_assistant.py").write_text("def answer(case): ...", "utf-8")
    ended = evalcore("validate", "--strict", *paths, env={"OPENAI_API_KEY": "key"})
    assert (ended.code, ended.err) == (0, "")


def test_the_suites_of_the_readme_pass(tmp_path: Path) -> None:
    paths = (tmp_path / "test.yaml", tmp_path / "workflow.yaml")
    shown = [text for page, text in SUITES if page == "README.md"]
    for path, text in zip(paths, shown, strict=False):
        path.write_text(text, "utf-8")
    assert evalcore("run", *paths, store=tmp_path).code == 0


def test_the_readmes_test_file_fails_with_its_python_target(tmp_path: Path) -> None:
    suite, target = code_blocks("README.md", "yaml")[:2]
    without = re.sub(r"^ +fixtures: .*\n", "", suite, flags=re.MULTILINE)
    (tmp_path / "colours.eval.yaml").write_text(without + target, "utf-8")
    (tmp_path / "painter.py").write_text(code_blocks("README.md", "python")[0], "utf-8")
    ended = evalcore("run", "--json", "colours.eval.yaml", store=tmp_path, cwd=tmp_path)
    assert ended.code == 1
    assert {case["id"]: case["passed"] for case in ended.report["cases"]} == {
        "sky": True,
        "json": False,
    }


def test_the_readme_shows_the_report_of_its_example(tmp_path: Path) -> None:
    (shown,) = code_blocks("README.md", "text")
    ended = evalcore("run", "examples/support-answers/suite.eval.yaml", store=tmp_path)
    # The last two lines tell the time, the run's id and its place.
    assert shown.splitlines()[:-2] == ended.out.splitlines()[:-2]


@pytest.mark.parametrize("name", ["run", "test"])
def test_the_readme_has_the_command_that_ci_executes(name: str) -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    place = lines.index(f"<!-- command: {name} -->")
    assert lines[place + 1] == "```bash"
