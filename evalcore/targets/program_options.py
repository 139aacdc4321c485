"""Options that the targets which run programs share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

ProgramSeconds = Annotated[
    float,
    Field(
        gt=0,
        allow_inf_nan=False,
        description="Seconds after which the program and its children are killed.",
    ),
]
ProgramVariables = Annotated[
    dict[str, str],
    Field(
        description="Environment variables beside PATH, HOME, LANG, LC_*, TMPDIR and SYSTEMROOT. "
        "Their values are left out of error messages.",
    ),
]
