"""The table of forms that a report can be stored in beside `report.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from evalcore.model.failure import Failure
from evalcore.report.document import Report
from evalcore.report.markdown import render_markdown


class Form(NamedTuple):
    """A form: the suffix of its file and what makes its text."""

    suffix: str
    render: Callable[[Report, Sequence[Failure]], str]


FORMS: Mapping[str, Form] = {"markdown": Form("md", render_markdown)}
