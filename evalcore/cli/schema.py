"""`evalcore schema FORMAT`: JSON Schemas, so that editors complete and check suite files."""

from __future__ import annotations

import click
import orjson

from evalcore.errors import UsageError
from evalcore.formats.registry import SCHEMAS, json_schema


@click.command()
@click.argument("format_", metavar="FORMAT")
def schema(format_: str) -> None:
    """Print the JSON Schema of a format."""
    if format_ not in SCHEMAS:
        raise UsageError(f"no schema for '{format_}'; formats: {', '.join(SCHEMAS)}")
    click.echo(orjson.dumps(json_schema(format_), option=orjson.OPT_INDENT_2))
