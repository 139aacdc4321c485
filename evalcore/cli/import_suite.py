"""`evalcore import`: a file of another program as a suite."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from evalcore.cli.showing import one_line
from evalcore.errors import UsageError

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
    """Write FILE as a suite: configurations, datasets, logs and exports of other programs.

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
    files = {path: text}
    if suite.module is not None:
        files[path.with_name(f"{module}.py")] = suite.module
    _write(files, force=force)
    _tell(files, len(suite.cases), notes.lines)
    _check(path)
    click.echo("next:", err=True)
    named = shlex.quote(os.path.normpath(path))
    click.echo(one_line(f"evalcore validate {named}"))
    click.echo(one_line(f"evalcore run {named}"))


def _renamed(columns: tuple[str, ...]) -> dict[str, str]:
    """Return the fields by the names of columns, as `--column` names them."""
    pairs = [column.partition("=") for column in columns]
    for name, _, field in pairs:
        if not name or not field:
            raise UsageError("--column: write NAME=FIELD, such as question=input")
    return {name: field for name, _, field in pairs}


def _tell(files: Mapping[Path, str], cases: int, notes: tuple[str, ...]) -> None:
    for path in files:
        click.echo(one_line(f"wrote {path}"), err=True)
    click.echo(f"{cases} case{'s' if cases > 1 else ''}", err=True)
    if notes:
        click.echo("what differs, or was not taken over (also in the file):", err=True)
    for note in notes:
        click.echo(one_line(f"- {note}"), err=True)


def _check(path: Path) -> None:
    """Load the suite that was written: values that no suite takes are told at once."""
    from evalcore.cli.options import settings
    from evalcore.formats.options import LoadOptions
    from evalcore.formats.registry import load_suite

    options = LoadOptions(secrets_required=False).configured(settings(), os.environ)
    load_suite(path, options, name=str(path))


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


def _write(files: Mapping[Path, str], *, force: bool) -> None:
    """Write all files, or none if one of them is there."""
    existing = [path for path in files if path.exists() or path.is_symlink()]
    if existing and not force:
        listed = ", ".join(map(str, existing))
        raise UsageError(
            f"nothing was written: {listed} would be overwritten; name another file with --out, "
            "or overwrite with --force"
        )
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8", newline="")
        except OSError as error:
            raise UsageError(f"{path}: cannot be written to: {error.strerror}") from error
