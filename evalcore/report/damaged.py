"""What stands in the place of the report of a run that is damaged, in each form.

No form shows counts or cases: a report of the rows that are left would be another run's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from evalcore.errors import DamagedRunError
from evalcore.model.gate import Decision, GateOutcome
from evalcore.report.document import on_one_line
from evalcore.report.escape import (
    escape_command,
    escape_markdown,
    escape_xml,
    escape_xml_attribute,
)

_GATE = "damaged"


def damaged_document(error: DamagedRunError) -> dict[str, Any]:
    """Return what `--json` prints instead of the report: the decision, why, and every place."""
    gate = {
        "name": _GATE,
        "outcome": GateOutcome.FAIL,
        "message": str(error),
        "details": {"places": len(error.damages)},
    }
    return {
        "run": {"id": error.run_id},
        "decision": Decision.ERROR,
        "message": str(error),
        "damaged": [damage._asdict() for damage in error.damages],
        "repairable": error.repairable,
        "gates": [gate],
        "counts": None,
        "cases": [],
        "cases_complete": False,
    }


def render_damaged(error: DamagedRunError, form: str) -> str:
    """Return the text of a form of `report.registry`, or of `json`."""
    return _FORMS[form](error)


def _json(error: DamagedRunError) -> str:
    return on_one_line(orjson.dumps(damaged_document(error)).decode()) + "\n"


def _markdown(error: DamagedRunError) -> str:
    items = "".join(f"- {escape_markdown(str(damage))}\n" for damage in error.damages)
    heading = f"# Run `{error.run_id}`: {Decision.ERROR}\n\n**The run is damaged.**\n\n"
    return f"{heading}{items}\n{error.remedy}\n"


def _html(error: DamagedRunError) -> str:
    items = "".join(f"<li>{escape_xml(str(damage))}</li>" for damage in error.damages)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{error.run_id}: damaged</title></head>\n<body><h1>Run {error.run_id}: "
        f'{Decision.ERROR}</h1>\n<p class="alarm" role="alert">The run is damaged.</p>\n'
        f"<ul>{items}</ul>\n<p>{escape_xml(error.remedy)}</p></body></html>\n"
    )


def _junit(error: DamagedRunError) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<testsuites tests="1" failures="0" errors="1">\n'
        f'  <testsuite name="{error.run_id}" tests="1" failures="0" errors="1" skipped="0">\n'
        f'    <testcase name="the run is whole" classname="{error.run_id}">\n'
        f'      <error type="damaged" message="{escape_xml_attribute(str(error))}"/>\n'
        "    </testcase>\n  </testsuite>\n</testsuites>\n"
    )


def _github(error: DamagedRunError) -> str:
    return f"::error title=run {error.run_id} is damaged::{escape_command(str(error))}\n"


_FORMS: Mapping[str, Callable[[DamagedRunError], str]] = {
    "json": _json,
    "markdown": _markdown,
    "html": _html,
    "junit": _junit,
    "github": _github,
}
