"""The table of forms that a report can be stored in beside `report.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, cast

from evalcore.model.failure import Failure
from evalcore.report.document import Report

Render = Callable[[Report, Sequence[Failure]], str]


class Form(NamedTuple):
    """A form: the suffix of its file, and the module and function that make its text."""

    suffix: str
    module: str
    function: str


FORMS: Mapping[str, Form] = {"markdown": Form("md", "evalcore.report.markdown", "render_markdown")}


def find_form(name: str) -> Render:
    """Return what makes the text of a form of `FORMS`, imported."""
    form = FORMS[name]
    return cast("Render", getattr(import_module(form.module), form.function))
