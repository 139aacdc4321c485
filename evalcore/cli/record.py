"""`evalcore record SUITE`: `evalcore run --mode record SUITE`."""

from __future__ import annotations

from typing import Any

import click

from evalcore.cli.run import run
from evalcore.model.mode import Mode

_RECORD_FLAGS = {"mode": Mode.RECORD.value, "resume": None, "watch": False}
_HELP = """Run suites with real calls, and record what the providers answer.

The same as `evalcore run --mode record`. `evalcore run --mode replay` then repeats the run
without a provider.
"""


def _record(**flags: Any) -> Any:
    return run.callback(**flags, **_RECORD_FLAGS) if run.callback is not None else None


record = click.Command(
    "record",
    callback=_record,
    params=[parameter for parameter in run.params if parameter.name not in _RECORD_FLAGS],
    help=_HELP,
)
