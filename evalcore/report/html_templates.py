"""Templates of HTML pages: what they show is escaped, and a name that has no value is an error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.mistakes.wording import plural
from evalcore.report.escape import visible

if TYPE_CHECKING:
    from jinja2 import Environment


def html_templates(folder: Path) -> Environment:
    """Return the templates of a folder; the filter `visible` shows invisible characters.

    `plural` gives the noun of a count: `{{ count }} {{ count|plural("case") }}`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["visible"] = lambda text: visible(str(text))
    templates.filters["plural"] = plural
    return templates
