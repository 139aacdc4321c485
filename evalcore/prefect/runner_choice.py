"""What executes the shards of a flow run: `threads`, `dask` or `ray`, and where it is.

Nothing of Prefect, Dask or Ray is imported here.
"""

from __future__ import annotations

import re
from enum import StrEnum
from importlib.util import find_spec
from typing import Final, NamedTuple

from evalcore.errors import NotAllowedError, UsageError
from evalcore.settings import Settings

# The plan of each run is cut for as many processes.
PLAN_WORKERS: Final = 2
FORMS: Final = "threads, dask, dask=tcp://HOST:PORT, ray, ray=ray://HOST:PORT"
_SCHEMES: Final = {"dask": ("tcp", "tls", "ws", "wss"), "ray": ("ray",)}
_ADDRESS: Final = re.compile(r"(?P<scheme>[a-z]+)://(?:\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}", re.A)


class RunnerKind(StrEnum):
    """What executes shards; AUTO is threads."""

    AUTO = "auto"
    THREADS = "threads"
    DASK = "dask"
    RAY = "ray"


class RunnerChoice(NamedTuple):
    """A runner, and the address of its cluster; without one it starts a cluster of its own."""

    kind: RunnerKind = RunnerKind.AUTO
    address: str = ""

    @property
    def is_cluster(self) -> bool:
        """Whether shards are executed by the processes of a Dask or a Ray cluster."""
        return self.kind in (RunnerKind.DASK, RunnerKind.RAY)

    def __str__(self) -> str:
        return f"{self.kind}={self.address}" if self.address else str(self.kind)


def parse_runner(text: str) -> RunnerChoice:
    """Return the runner that a text names; raise `UsageError` for one that does not exist."""
    name, separator, address = text.strip().partition("=")
    if name not in tuple(RunnerKind):
        raise UsageError(f"there is no runner '{name}'; would work: {FORMS}")
    choice = RunnerChoice(RunnerKind(name), address)
    if not separator:
        return choice
    schemes = _SCHEMES.get(name)
    if schemes is None:
        raise UsageError(f"the runner '{name}' takes no address; would work: {FORMS}")
    parts = _ADDRESS.fullmatch(address)
    if parts is None or parts["scheme"] not in schemes:
        likely = ", ".join(f"{name}={scheme}://HOST:PORT" for scheme in schemes)
        raise UsageError(f"'{address}' is no address of a {name} cluster; would work: {likely}")
    return choice


def require_installed(choice: RunnerChoice) -> None:
    """Raise `UsageError` for a cluster whose package is not installed."""
    if choice.is_cluster and find_spec(f"prefect_{choice.kind}") is None:
        extra = f"pip install 'evalcore-pipeline[{choice.kind}]'"
        raise UsageError(f"the runner '{choice.kind}' needs the extra '{choice.kind}': {extra}")


def permitted_runner(choice: RunnerChoice, settings: Settings) -> RunnerChoice:
    """Return a runner that a flow's parameter names.

    Raises `NotAllowedError` for the address of a cluster that the worker's settings do not name:
    what answers there sends objects that the flow run unpickles.
    """
    if choice.address and str(choice) not in settings.allow_runners:
        raise NotAllowedError(
            f"the runner '{choice}' is none that EVALCORE_ALLOW_RUNNERS of this worker allows"
        )
    return choice
