"""`evalcore decide`: single gates over given results, JSON lines in and out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import orjson

from evalcore.cli.options import settings
from evalcore.errors import EvalError, ExitCode
from evalcore.formats.single_gate import read_question
from evalcore.formats.source import parse_json, too_large_number
from evalcore.gates.registry import GateSyntaxError
from evalcore.model.comparison import Difference
from evalcore.pipeline.single_gate import decide_question
from evalcore.report.document import on_one_line
from evalcore.trust.imports import ImportPolicy


@click.command()
@click.option("--allow-import", "imports", multiple=True, metavar="MODULE", help="May be imported.")
def decide(imports: tuple[str, ...]) -> int:
    """Decide gates: {"id", "gate", "baseline", "variants"} a line on standard input.

    Prints {"id", "passed", "outcome", "message", "regressions", "improvements"} a line, in the same
    order; the outcome is "error" for a gate or results that a suite could not have.
    """
    allowed = (*settings().allow_imports, *imports)
    policy = ImportPolicy(roots=(Path.cwd(),), allowed=allowed)
    code = ExitCode.PASS
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        try:
            raw = parse_json(line)
        except ValueError as error:
            code = ExitCode.USAGE
            answer = _error(None, f"not valid JSON: {error}")
        else:
            answer = _refused(line, raw) or _answer(raw, policy)
        click.echo(on_one_line(orjson.dumps(answer).decode()))
    return int(code)


def _refused(line: bytes, raw: Any) -> dict[str, Any] | None:
    """Return the answer to a question with a number that no table holds."""
    problem = too_large_number(line, raw)
    if problem is None:
        return None
    identity = raw.get("id") if isinstance(raw, dict) else None
    return _error(None if too_large_number(line, identity) else identity, problem)


def _answer(raw: Any, imports: ImportPolicy) -> dict[str, Any]:
    if not isinstance(raw, dict):
        return _error(None, "a line is an object with 'gate' and 'variants'")
    try:
        result, summary = decide_question(read_question(raw), imports.load)
    except (EvalError, GateSyntaxError) as error:
        return _error(raw.get("id"), str(error))
    compared = summary.comparison.variants if summary.comparison is not None else ()
    return {
        "id": raw.get("id"),
        "passed": result.passed,
        "outcome": result.outcome,
        "message": result.message,
        "regressions": [_entry(entry) for one in compared for entry in one.regressions],
        "improvements": [_entry(entry) for one in compared for entry in one.improvements],
    }


def _entry(entry: Difference) -> dict[str, str]:
    return {"variant": entry.variant, "case": entry.case, "kind": entry.kind}


def _error(identity: object, message: str) -> dict[str, Any]:
    return {
        "id": identity,
        "passed": False,
        "outcome": "error",
        "message": message,
        "regressions": [],
        "improvements": [],
    }
