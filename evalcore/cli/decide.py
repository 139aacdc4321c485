"""`evalcore decide`: single gates over given results, JSON lines in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evalcore.cli.json_lines import NoQuestionError, answer_lines
from evalcore.cli.options import import_option, settings
from evalcore.cli.reserved_output import reserved_stdout
from evalcore.errors import EvalError
from evalcore.formats.single_gate import read_question, unread_keys
from evalcore.isolation.mode import Isolation
from evalcore.model.summary import Difference
from evalcore.pipeline.gates import DecideOptions, decide_question
from evalcore.shapes import ParameterError
from evalcore.trust.imports import ImportPolicy


@click.command()
@import_option
def decide(imports: tuple[str, ...]) -> int:
    """Decide gates: {"id", "gate", "baseline", "variants"} a line on standard input.

    Prints {"id", "passed", "outcome", "message", "regressions", "improvements"} a line, in the same
    order; the outcome is "error" for a gate or results that a suite could not have, and for a line
    that is no question, which makes the exit code 2.
    """
    allowed = (*settings().allow_imports, *imports)
    policy = ImportPolicy(roots=(Path.cwd(),), allowed=allowed)
    return answer_lines(lambda raw: _answer(raw, policy), _error, unread_keys)


def _answer(raw: Any, imports: ImportPolicy) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise NoQuestionError("expected an object with 'gate' and 'variants'")
    try:
        question = read_question(raw)
        options = DecideOptions(imports, isolation=Isolation(settings().isolation))
        with reserved_stdout():
            result, summary = decide_question(question, options.resolve)
    except (EvalError, ParameterError) as error:
        return _error(raw.get("id"), str(error))
    compared = summary.comparison.variants if summary.comparison is not None else ()
    return {
        "id": raw.get("id"),
        "passed": result.passed,
        "outcome": result.outcome,
        "message": result.message,
        "regressions": [
            _entry(entry)
            for candidate in compared
            for entry in (*candidate.regressions, *candidate.worse_measures)
        ],
        "improvements": [
            _entry(entry)
            for candidate in compared
            for entry in (*candidate.improvements, *candidate.better_measures)
        ],
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
