"""What may be asked of flows from outside: the form of `evaluate`, and what a worker permits.

A form is one pydantic model, whose fields are the flow's parameters: Prefect's UI renders it, its
server validates it. Parameters come over the network, from anyone who may trigger a deployment.
They choose among what the worker is configured for and grant nothing (docs/reference/trust.md).
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field

from evalcore.errors import EvalError, NotAllowedError, UsageError
from evalcore.formats.options import LoadOptions
from evalcore.gates.registry import parse_gate_options
from evalcore.model.iterations import Iterations, parse_iterations
from evalcore.model.suite import QUARANTINE_FILE
from evalcore.pipeline.acceptance import AcceptingWorker
from evalcore.settings import Settings, read_settings
from evalcore.storage.address import folder_of_store, is_allowed_store, open_store
from evalcore.storage.store import ObjectStore
from evalcore.trust.files import has_magic, matching_files

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTION_NAMES = {
    "--case": "cases",
    "--exclude-tag": "exclude_tags",
    "--tag": "tags",
    "--target": "target",
    "--variant": "variants",
}
_Name = Annotated[str, Field(min_length=1, max_length=1000)]
_Names = Annotated[list[_Name], Field(max_length=100)]
StoreAddress = Annotated[str, Field(max_length=1000, examples=["s3://evals/production"])]
_HOST: Final = r"(\[[0-9a-fA-F:]+\]|[a-zA-Z0-9_.-]+):[0-9]{1,5}"
_RUNNER: Final = rf"^(auto|threads|dask(=(tcp|tls|wss?)://{_HOST})?|ray(=ray://{_HOST})?)$"


class EvaluateParameters(BaseModel):
    """One run of one suite. Flat, because a schedule's parameters replace whole values.

    The order is that of the form: what is chosen for most runs first. Defaults are literal: a
    factory's would not reach the form.

    Args:
        suite: The suite's file, relative to the worker's working folder and below it. With
            `resume` it only names the flow run.
        mode: Where providers' answers come from: `live` calls them, `record` also saves what they
            answer, `replay` uses recordings only, `auto` records what is missing.
        cases: Only the cases with these ids; empty means all.
        tags: Only cases with one of these tags; empty means all.
        exclude_tags: No case with one of these tags.
        target: A target of the suite, evaluated in place of its default one.
        variants: Only these variants; empty means all.
        baseline: What the run is compared with: a variant, a named baseline, or an earlier run by
            its id or as `latest`; empty means what the suite says.
        reuse: Take what did not change from the suite's last 20 runs instead of executing it again.
        iterations: How often each case and variant is run, 1 to 1000, or `auto:MAX`: until the
            gates are decided; empty means what the suite says.
        gates: Gates in place of the suite's: `NAME`, `NAME=VALUE` or `NAME:key=value`, for example
            `pass_rate=0.9`.
        threshold: The score to reach, 0 to 1; empty means what the suite says.
        concurrency: Work items at the same time, up to 1000; empty means what the suite says, else
            16.
        machines: How many flow runs of `evaluate-shards` on the work pool execute the shards, up to
            64; 1 means this flow run's own process.
        runner: What executes the shards: `threads` of the flow run, or the processes of a Dask or a
            Ray cluster (`dask`, `ray`), which the flow run starts if it has no address; an address
            (`dask=tcp://dask-scheduler:8786`) has to be one of the worker's EVALCORE_ALLOW_RUNNERS.
        resume: The id of an unfinished run to go on with: only what has no result yet is executed,
            as it was planned. A completed run is published again.
        strict: Refuse a suite that loads with warnings, too.
        store: The store: a folder or `s3://bucket/prefix` that the worker allows
            (EVALCORE_ALLOW_STORES); empty means its own (EVALCORE_STORE).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: Annotated[_Name, Field(examples=["evals/support.eval.yaml"])]
    mode: Literal["live", "record", "replay", "auto"] = "live"
    cases: Annotated[list[_Name], Field(max_length=10_000, examples=[["refund"]])] = []
    tags: Annotated[_Names, Field(examples=[["smoke"]])] = []
    exclude_tags: Annotated[_Names, Field(examples=[["slow"]])] = []
    target: Annotated[str, Field(max_length=200, examples=["gpt-small"])] = ""
    variants: Annotated[_Names, Field(examples=[["short-prompt"]])] = []
    baseline: Annotated[str, Field(max_length=200, examples=["main"])] = ""
    reuse: bool = False
    iterations: Annotated[
        Annotated[int, Field(ge=1, le=1000)]
        | Annotated[str, Field(pattern=r"^auto(:\d{1,4})?$")]
        | None,
        Field(examples=[5, "auto:10"]),
    ] = None
    gates: Annotated[_Names, Field(examples=[["pass_rate=0.9", "p95_latency_under=2000"]])] = []
    threshold: Annotated[float | None, Field(ge=0, le=1, examples=[0.8])] = None
    concurrency: Annotated[int | None, Field(ge=1, le=1000, examples=[32])] = None
    machines: Annotated[int, Field(ge=1, le=64, examples=[4])] = 1
    runner: Annotated[str, Field(pattern=_RUNNER, examples=["dask=tcp://dask-scheduler:8786"])] = (
        "auto"
    )
    resume: Annotated[
        str | None,
        Field(pattern=r"^\d{8}T\d{6}Z-[0-9a-f]{6}$", examples=["20260518T100000Z-0a1b2c"]),
    ] = None
    strict: bool = False
    store: StoreAddress = ""


def takes_parameters(*models: type[BaseModel]) -> Callable[[Function], Function]:
    """Give a function of `**keywords` the signature of the first model.

    Prefect makes the form and its checks from a signature, and the form's descriptions from the
    `Args` of docstrings: those of all models.
    """
    hints = get_type_hints(models[0], include_extras=True)
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.is_required() else field.default,
            annotation=hints[name],
        )
        for name, field in models[0].model_fields.items()
    ]
    described = [inspect.getdoc(model) or "" for model in models]
    arguments = "\n".join(text.partition("Args:\n")[2] for text in described)

    def give(function: Function) -> Function:
        function.__doc__ = f"{function.__doc__}\n\nArgs:\n{arguments}"
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return function

    return give


def load_options(
    parameters: EvaluateParameters, settings: Settings, environment: Mapping[str, str]
) -> LoadOptions:
    """Return what the parameters lay over the suite's file; raise `UsageError`."""
    iterations = _iterations(parameters.iterations)
    return LoadOptions(
        target=parameters.target or None,
        threshold=parameters.threshold,
        iterations=None if iterations is None else iterations.most,
        auto_iterations=iterations is not None and iterations.auto,
        gates=parse_gate_options(parameters.gates, "gates"),
        concurrency=parameters.concurrency,
        cases=frozenset(parameters.cases),
        tags=frozenset(parameters.tags),
        excluded_tags=frozenset(parameters.exclude_tags),
        variants=frozenset(parameters.variants),
        baseline=parameters.baseline or None,
        strict=parameters.strict,
        # A replay asks no provider and needs no key.
        secrets_required=parameters.mode != "replay",
        option_names=_OPTION_NAMES,
        # The store that a parameter names grants nothing: parameters come over the network.
    ).configured(settings, environment)


def _iterations(value: int | str | None) -> Iterations | None:
    try:
        return None if value is None else parse_iterations(value)
    except ValueError as error:
        raise UsageError(f"iterations: {error}") from error


def this_worker() -> AcceptingWorker:
    """Return what this process allows; raise `UsageError` without the deployment's folder."""
    from evalcore.prefect.collection import NO_FOLDER  # imports Prefect

    if reason := os.environ.get(NO_FOLDER):
        raise UsageError(
            f"{reason}: this worker cannot enter the folder of the deployment; start the worker on "
            "a machine that has it, or name another one with `evalcore deploy --folder DIR`"
        )
    folder = Path.cwd()
    return AcceptingWorker(folder, read_settings(os.environ, folder), environment=os.environ)


def permitted_store(address: str, settings: Settings) -> ObjectStore:
    """Return the store at `address`, the configured one if it is empty.

    Raises `NotAllowedError` unless it is the configured one or is allowed by EVALCORE_ALLOW_STORES.
    """
    if address and not is_allowed_store(address, (settings.store, *settings.allow_stores)):
        # Not the whole address: it may hold a password.
        without_password = address.rpartition("@")[2]
        raise NotAllowedError(
            f"the store {without_password!r} is not the one of this worker (EVALCORE_STORE), and "
            "none that EVALCORE_ALLOW_STORES allows"
        )
    return open_store(address or settings.store)


def permitted_suite(name: str, worker: AcceptingWorker) -> Path:
    """Return the file of a suite that a parameter names.

    Raises `NotAllowedError` unless it lies below the worker's folder, links resolved, and in none
    of its stores: what stands in a store is data.
    """
    own_folder = worker.folder.resolve()
    try:
        path = (own_folder / name).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise NotAllowedError(f"{name!r} is no name of a file: {error}") from error
    if not path.is_relative_to(own_folder):
        raise NotAllowedError(f"{name}: a suite's file lies below the working folder")
    settings = worker.settings
    for store in (settings.store, *settings.allow_stores):
        folder = folder_of_store(store)
        if folder is None or folder == own_folder or not folder.is_relative_to(own_folder):
            continue
        if path.is_relative_to(folder):
            raise NotAllowedError(f"{name}: lies in the store {folder}, where suites are data")
    return path


def find_suites(patterns: Sequence[str], folder: Path) -> dict[str, bool]:
    """Return the files that the patterns name, in their order, each once, and whether it is there.

    A pattern's own files are in alphabetical order, nothing hidden, no file of quarantines. A
    pattern that no file below `folder` matches stands for itself.
    """
    suites: dict[str, bool] = {}
    for pattern in patterns:
        if not has_magic(pattern):
            suites.setdefault(pattern, (folder / pattern).is_file())
            continue
        names: list[str] = []
        if not Path(pattern).is_absolute():
            with suppress(EvalError, ValueError):
                names = matching_files(pattern, folder, folder)
        files = [
            name
            for name in names
            if not any(part.startswith(".") for part in Path(name).parts)
            and Path(name).name != QUARANTINE_FILE
            and (folder / name).is_file()
        ]
        suites |= dict.fromkeys(files, True) or {pattern: False}
    return suites


# The plan of each run is cut for as many processes.
PLAN_WORKERS: Final = 2
_RUNNERS: Final = "threads, dask, dask=tcp://HOST:PORT, ray, ray=ray://HOST:PORT"


class RunnerChoice(NamedTuple):
    """A runner, and the address of its cluster; without one it starts a cluster of its own."""

    kind: str = "auto"
    address: str = ""

    @property
    def is_cluster(self) -> bool:
        """Whether shards are executed by the processes of a Dask or a Ray cluster."""
        return self.kind in ("dask", "ray")

    def __str__(self) -> str:
        return f"{self.kind}={self.address}" if self.address else self.kind


def parse_runner(text: str) -> RunnerChoice:
    """Return the runner that a text names; raise `UsageError` for one that does not exist."""
    if re.fullmatch(_RUNNER, text) is None:
        raise UsageError(f"there is no runner '{text}'; would work: {_RUNNERS}")
    kind, _, address = text.partition("=")
    return RunnerChoice(kind, address)


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
