"""Write the tables of the documentation that are generated from the code.

    python .ci/tables.py

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. A test compares it with the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evalcore.checks.registry import AssertionType, Dialect, assertion_types, find_check
from evalcore.checks.scorers import SCORERS
from evalcore.cli.main import SECTIONS, cli
from evalcore.gates.registry import GATES
from evalcore.history.columns import TABLES as HISTORY_TABLES
from evalcore.shapes import choices_of, documented, parameters_of
from evalcore.sql.columns import RESULT_COLUMNS
from evalcore.targets.registry import KINDS, options_model
from evalcore.workflow.definition import Block
from evalcore.workflow.reading import BLOCK_TYPES


def assertions_table() -> str:
    """Return the assertion types, for docs/reference/assertions.md."""
    files = {Dialect.WORKFLOW: "workflow", Dialect.TEST: "test", Dialect.SUITE: "suite"}
    kinds: dict[str, list[AssertionType]] = {}
    for dialect in files:
        for name, kind in assertion_types(dialect).items():
            kinds.setdefault(name, []).append(kind)
    rows = []
    for name, of_name in kinds.items():
        read_in = ", ".join(files[kind.dialect] for kind in of_name)
        keys = dict.fromkeys(key for kind in of_name for key in kind.own_keys)
        shown_keys = ", ".join(f"`{key}`" for key in keys) or "–"
        check = of_name[0].check
        rows.append([f"`{name}`", read_in, shown_keys, f"`{check}`", summary(find_check(check))])
    return _table("type | files | keys | check | passes when", rows)


def scorers_table() -> str:
    """Return the scorers, for docs/reference/suites.md."""
    rows = [
        [f"`{name}`", parameters_cell(kind, ("name", "behaviour")), documented(kind)]
        for name, kind in SCORERS.items()
    ]
    return _table("scorer | parameters | measures", rows)


def gates_table() -> str:
    """Return the gates, for docs/reference/gates.md."""
    rows = [[f"`{name}`", parameters_cell(kind), documented(kind)] for name, kind in GATES.items()]
    return _table("gate | parameters | passes when", rows)


def targets_table() -> str:
    """Return the providers, for docs/reference/targets.md."""
    rows = [
        [f"`{kind}`", summary(row.runnable), fields_cell(options_model(kind))]
        for kind, row in KINDS.items()
    ]
    return _table("provider | does | options", rows)


def blocks_table() -> str:
    """Return the block types, for docs/reference/workflow-engine.md."""
    rows = []
    for kind, block in BLOCK_TYPES.items():
        # Keys that blocks of every type have are shown with those that need them.
        shared = tuple(key for key in Block.model_fields if key not in block.needs)
        rows.append([f"`{kind}`", fields_cell(block, shared), summary(block)])
    return _table("type | own fields | does", rows)


def columns_table(columns: Sequence[Any]) -> str:
    """Return the columns of stored tables."""
    rows = [
        [f"`{column.name}`", column.type, column.unit or "–", column.meaning] for column in columns
    ]
    return _table("column | type | unit | holds", rows)


def summary(shape: type[object]) -> str:
    """Return the first paragraph of the class's docstring on one line."""
    return " ".join((shape.__doc__ or "").split("\n\n")[0].split())


def commands_table() -> str:
    """Return the commands, for docs/reference/command-line.md."""
    rows = []
    for title, commands in SECTIONS.items():
        for name, (_, about) in commands.items():
            command = cli.get_command(click.Context(cli), name)
            below = command.commands if isinstance(command, click.Group) else {}
            words = [f"{name} {each}" for each in sorted(below)] or [name]
            links = (f"[`{word}`](#evalcore-{word.replace(' ', '-')})" for word in words)
            rows.append([title, ", ".join(links), about])
    return _table("section | commands | does", rows)


def leaf_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that does something, with its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        if (found := command.get_command(context, name)) is not None:
            yield from leaf_commands(found, f"{path} {name}")


def flags_table(command: click.Command) -> str:
    """Return the flags of a command, for its section of docs/reference/command-line.md."""
    context = click.Context(command)
    rows = []
    for option in command.params:
        if isinstance(option, click.Option):
            choices = option.make_metavar(context).removesuffix(" RANGE")
            is_choice = choices.startswith("[") and choices.endswith("]")
            metavar = choices[1:-1] if is_choice else choices
            names = [*option.opts, *option.secondary_opts]
            names[-1] += "" if option.is_flag else f" {metavar}"
            record = option.get_help_record(context)
            about = " ".join(f"{option.help if record is None else record[1]}".split()).replace(
                "[", r"\["
            )
            cells = [", ".join(f"`{name}`" for name in names), about.replace("*", r"\*")]
            rows.append([cell.replace("|", r"\|") for cell in cells])
    return _table("flag | means", rows)


def fields_cell(shape: type[BaseModel], without: Collection[str] = ()) -> str:
    """Return the keys of a class, with the defaults that say much."""
    cells = []
    for name, field in shape.model_fields.items():
        key = field.alias or name
        if key in without:
            continue
        default = field.default
        has_default = isinstance(default, str | int | float) and default not in ("", False)
        cells.append(f"`{key}`" + (f" ({default})" if has_default else ""))
    return ", ".join(cells) or "–"


def parameters_cell(declared: type, without: Collection[str] = ()) -> str:
    """Return the parameters, with their defaults and units."""
    parameters = parameters_of(declared).items()
    cells = [_parameter(key, each) for key, each in parameters if key not in without]
    return ", ".join(cells) or "–"


def _parameter(key: str, parameter: FieldInfo) -> str:
    has_none = parameter.is_required() or parameter.default is None
    default = "" if has_none else str(parameter.default).lower()
    facts = " ".join(filter(None, (default, parameter.description)))
    if choices := choices_of(parameter):
        alternatives = " or ".join(f"`{each}`" for each in choices if each != parameter.default)
        facts = f"`{default}`, or {alternatives}"
    return f"`{key}`" + (f" ({facts})" if facts else "")


def _table(heads: str, rows: Sequence[Sequence[str]]) -> str:
    line = "|" + "---|" * len(heads.split(" | "))
    return "\n".join([f"| {heads} |", line, *(f"| {' | '.join(row)} |" for row in rows)])


REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
TABLES: dict[str, Callable[[], str]] = {
    "commands": commands_table,
    "assertions": assertions_table,
    "gates": gates_table,
    "scorers": scorers_table,
    "targets": targets_table,
    "blocks": blocks_table,
    "result-columns": partial(columns_table, RESULT_COLUMNS),
    **{
        f"history-{name}": partial(columns_table, table.columns)
        for name, table in HISTORY_TABLES.items()
    },
    **{
        path.replace(" ", "-"): partial(flags_table, command)
        for path, command in leaf_commands(cli, "evalcore")
        if path != "evalcore record"  # which has those of `run`
        and any(isinstance(option, click.Option) for option in command.params)
    },
}


def main() -> None:
    """Write every table into its page."""
    for page in REFERENCE.glob("*.md"):
        text = page.read_text("utf-8")
        for name, table in TABLES.items():
            pattern = rf"(?<=<!-- table: {name} -->\n\n).*?(?=\n\n<!-- end -->)"
            text = re.sub(pattern, table().replace("\\", r"\\"), text, flags=re.DOTALL)
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
