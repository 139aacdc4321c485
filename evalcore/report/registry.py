"""The table of forms that a report can be shown and stored in beside `report.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from evalcore.errors import DamagedRunError, UsageError
from evalcore.mistakes.wording import did_you_mean
from evalcore.model.gate import Decision, GateOutcome
from evalcore.report.document import on_one_line
from evalcore.report.escape import (
    escape_command,
    escape_markdown,
    escape_xml,
    escape_xml_attribute,
)

if TYPE_CHECKING:
    from evalcore.report.view import ReportView


Render = Callable[["ReportView"], Iterator[str]]
"""Yields the form's text in pieces; its reader puts them together or writes one after another."""

JSON = "json"


class Form(NamedTuple):
    """A form: the end of its file's name, and the module and function that make its text."""

    suffix: str
    module: str
    function: str


FORMS: Mapping[str, Form] = {
    "html": Form("html", "evalcore.report.html", "render"),
    "junit": Form("junit.xml", "evalcore.report.junit", "render"),
    "markdown": Form("md", "evalcore.report.markdown", "render"),
    "github": Form("github.txt", "evalcore.report.github", "render"),
}
_ALIASES = {"md": "markdown", "xml": "junit", "junit-xml": "junit", "junitxml": "junit"}


def parse_forms(text: str) -> tuple[str, ...]:
    """Return the forms of a list such as `html,junit`, each once.

    `json` is none of them: `report.json` is always there. Raises `UsageError` for an unknown form.
    """
    forms: dict[str, None] = {}
    for part in text.split(","):
        name = part.strip().lower()
        if name and name != JSON:
            forms[check_form(_ALIASES.get(name, name))] = None
    return tuple(forms)


def check_form(name: str) -> str:
    """Return the name of a form; raise `UsageError` with a suggestion for an unknown one."""
    if name in FORMS:
        return name
    names = [*FORMS, JSON]
    hint = did_you_mean(name, names)
    raise UsageError(f"unknown form of report '{name}'.{hint} Known: {', '.join(names)}")


def find_form(name: str) -> Render:
    """Return what makes the text of a form of `FORMS`, imported."""
    form = FORMS[name]
    return cast("Render", getattr(import_module(form.module), form.function))


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
