"""`evalcore init`, `import`, `schema`: how a suite begins."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import orjson

from evalcore.cli.options import load_plainly
from evalcore.cli.output import say
from evalcore.errors import UsageError
from evalcore.model.suite import Format
from evalcore.wording import counted

PYTHON: Final = "python"
_TEMPLATES: Final = Path(__file__).parent / "starters"
_SUITE: Final = "<name>.eval.yaml"


STARTERS: Final[Mapping[str, Mapping[str, str]]] = {
    Format.TEST_FILE: {_SUITE: "suite.eval.yaml", "<module>_target.py": "target.py.txt"},
    Format.SUITE: {_SUITE: "suite.eval.yaml", "<module>_flow.py": "flow.py.txt"},
    PYTHON: {"<module>.py": "suite.py.txt", "<module>_flow.py": "flow.py.txt"},
    Format.WORKFLOW_HARNESS: {_SUITE: "suite.eval.yaml"},
    Format.SCRIPT_SUITE: {_SUITE: "suite.eval.yaml"},
    Format.WORKFLOW_EVALS: {_SUITE: "suite.eval.yaml"},
}
"""The templates of each format by the names of the files made of them; the first is the suite."""


def starter_files(format_: str, name: str) -> dict[str, bytes]:
    """Return the files of a starter by their names; the first is the suite."""

    def filled(text: str) -> str:
        return text.replace("<name>", name).replace("<module>", name.replace("-", "_"))

    files = {
        filled(file): filled((_TEMPLATES / format_ / template).read_text("utf-8")).encode()
        for file, template in STARTERS[format_].items()
    }
    if format_ != PYTHON:
        from evalcore.formats.registry import json_schema

        schema = orjson.dumps(json_schema(format_), option=orjson.OPT_INDENT_2)
        files[f"{format_}.schema.json"] = schema + b"\n"
    return files


_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")


@click.command()
@click.argument("folder", default=".", metavar="[FOLDER]")
@click.option(
    "--format",
    "format_",
    default=Format.TEST_FILE.value,
    show_default=True,
    metavar="FORMAT",
    help=f"One of {', '.join(STARTERS)}.",
)
@click.option(
    "--name",
    default="quickstart",
    show_default=True,
    metavar="NAME",
    help="The suite's name, and that of its file.",
)
def init(folder: str, format_: str, name: str) -> None:
    """Write a small suite to FOLDER that runs without a key or a server.

    No file is overwritten. A YAML suite names its JSON Schema, which stands beside it, for editors.
    """
    if format_ not in STARTERS:
        raise UsageError(f"--format: unknown format '{format_}'; formats: {', '.join(STARTERS)}")
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"--name: {name!r} is no name of a suite; write lower-case letters, digits, - and _, "
            "as in quickstart"
        )
    if name.replace("-", "_") in sys.stdlib_module_names:
        raise UsageError(f"--name: Python's standard library has a module {name}; write another")
    root = Path(folder)
    files = {root / file: data for file, data in starter_files(format_, name).items()}
    _write(files, "choose another --name")
    for file in files:
        say(f"wrote {file}", err=True)
    click.echo("next:", err=True)
    suite = shlex.quote(os.path.normpath(next(iter(files))))
    click.echo(f"evalcore run {suite}\nevalcore report latest --verbose")


def _write(files: Mapping[Path, bytes], instead: str, *, force: bool = False) -> None:
    """Write all files, or none if one of them is there; a schema that is the same may be."""
    existing = [
        path
        for path, data in files.items()
        if (path.exists() or path.is_symlink())
        and not (path.name.endswith(".schema.json") and path.read_bytes() == data)
    ]
    if existing and not force:
        listed = ", ".join(map(str, existing))
        raise UsageError(f"nothing was written: {listed} would be overwritten; {instead}")
    for path, data in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written to: {error.strerror}") from error


SOURCES: Final = (
    "deepeval",
    "promptfoo",
    "inspect",
    "pydantic-evals",
    "langsmith",
    "braintrust",
)
CHECKS: Final = ("contains", "equals", "judge")
_SUFFIX: Final = ".eval.yaml"


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "source",
    type=click.Choice(SOURCES),
    help="The program that the file is of.  [default: by its content]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The suite to write.  [default: NAME.eval.yaml beside FILE]",
)
@click.option(
    "--target",
    metavar="NAME|MODULE:FUNCTION",
    help="What answers, in place of the file's own: a target of targets.yaml, or a function.",
)
@click.option(
    "--check",
    type=click.Choice(CHECKS),
    help="How answers are compared, where the file does not say.  [default: contains]",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=FIELD",
    help="A column of the rows under another name: question=input, answer=target; repeatable.",
)
@click.option("--force", is_flag=True, help="Overwrite the files.")
def import_command(
    file: Path,
    source: str | None,
    out: Path | None,
    target: str | None,
    check: str | None,
    columns: tuple[str, ...],
    force: bool,
) -> None:
    """Convert FILE to a suite: configurations, datasets, logs and exports of other programs.

    What has no counterpart is told on standard error and stands as a comment in the suite. Checks
    that only Python can do are written to a module beside it. No file is overwritten without
    --force.
    """
    from evalcore.importers.converted import Notes, suite_text
    from evalcore.importers.files import read_foreign_file
    from evalcore.importers.registry import ImportOptions, convert, recognise_source

    opened = read_foreign_file(file).with_columns(_renamed(columns))
    source = source or recognise_source(opened)
    path = out or file.with_name(f"{_stem(file)}{_SUFFIX}")
    if path.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--out: {path}: a suite is written as YAML; name a file *{_SUFFIX}")
    notes = Notes()
    suite = convert(opened, source, ImportOptions(_stem(path), check), notes)
    if not suite.targets and target is None and any(case.output is None for case in suite.cases):
        notes.add(
            "the file does not say what answers: the target `echo`, which repeats the question, "
            "holds its position; write your own under `targets`, or import with --target"
        )
    if suite.prompts and target is not None and ":" in target:
        notes.add(
            "the function is given the filled prompts as its input, by their keys, and the key of "
            "the one that it has to answer as config['prompt_key']"
        )
    if suite.imported_files and path.parent.resolve() != file.parent.resolve():
        listed = ", ".join(suite.imported_files)
        notes.add(f"the suite imports {listed}: copy that into its own folder, too")
    module = _module_name(path)
    text = suite_text(
        suite,
        origin=f"{file.name} ({source}) by `evalcore import`",
        module=module,
        target=target,
        notes=notes.lines,
    )
    files = {path: text.encode()}
    if suite.module is not None:
        files[path.with_name(f"{module}.py")] = suite.module.encode()
    _write(files, "name another file with --out, or overwrite with --force", force=force)
    for written in files:
        say(f"wrote {written}", err=True)
    click.echo(counted(len(suite.cases), "case"), err=True)
    if notes.lines:
        click.echo("what differs, or was not taken over (also in the file):", err=True)
    for note in notes.lines:
        say(f"- {note}", err=True)
    load_plainly(path)  # values that no suite takes are told at once
    click.echo("next:", err=True)
    named = shlex.quote(os.path.normpath(path))
    say(f"evalcore validate {named}")
    say(f"evalcore run {named}")


def _renamed(columns: tuple[str, ...]) -> dict[str, str]:
    """Return the fields by the names of columns, as `--column` names them."""
    pairs = [column.partition("=") for column in columns]
    for name, _, field in pairs:
        if not name or not field:
            raise UsageError("--column: write NAME=FIELD, such as question=input")
    return {name: field for name, _, field in pairs}


def _stem(path: Path) -> str:
    """Return a name for the suite: the file's without its endings."""
    name = path.name
    for suffix in (_SUFFIX, ".eval.yml", path.suffix):
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


def _module_name(path: Path) -> str:
    words = re.sub(r"\W+", "_", _stem(path), flags=re.ASCII).strip("_").lower()
    name = f"{words or 'suite'}_checks"
    return f"suite_{name}" if name[0].isdigit() or name in sys.stdlib_module_names else name


@click.command()
@click.argument("format_", metavar="FORMAT")
def schema(format_: str) -> None:
    """Print the JSON Schema of a format, for editors."""
    from evalcore.formats.registry import FORMATS, json_schema

    if format_ not in FORMATS:
        raise UsageError(f"no schema for '{format_}'; formats: {', '.join(FORMATS)}")
    click.echo(orjson.dumps(json_schema(format_), option=orjson.OPT_INDENT_2))
