"""Ages on the command line: `90d`, `12h`, `2w`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import click

_AGE: Final = re.compile(r"(\d{1,5})([hdw])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}
AGE_FORMS: Final = "an age is a number of hours, days or weeks: 12h, 90d, 2w"


class Age(click.ParamType[timedelta]):
    """A whole number of hours, days or weeks, as a `timedelta`."""

    name = "age"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the age that a text says."""
        if isinstance(value, timedelta):
            return value
        match = _AGE.fullmatch(value.strip())
        if match is None:
            self.fail(f"{value!r} is no age: {AGE_FORMS}", param, ctx)
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
