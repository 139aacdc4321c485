"""The table of forms that a report can be shown and stored in beside `report.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

import orjson

from evalcore.errors import DamagedRunError, UsageError
from evalcore.model.run import Decision, GateOutcome
from evalcore.report.document import on_one_line
from evalcore.wording import did_you_mean

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


def damaged_json(error: DamagedRunError) -> str:
    """Return what `--json` prints instead of the report of a damaged run: why, and every place.

    It shows no counts and no cases: a report of the rows that are left would be another run's.
    Other forms of such a run do not exist.
    """
    gate = {
        "name": "damaged",
        "outcome": GateOutcome.FAIL,
        "message": str(error),
        "details": {"places": len(error.damages)},
    }
    document = {
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
    return on_one_line(orjson.dumps(document).decode()) + "\n"
