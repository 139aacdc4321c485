"""Options that several commands share, and what they mean."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from evalcore.errors import UsageError
from evalcore.model.iterations import Iterations, parse_iterations
from evalcore.model.mode import Mode
from evalcore.storage.address import open_store
from evalcore.storage.store import ObjectStore

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from evalcore.formats.options import LoadOptions
    from evalcore.model.suite import Suite
    from evalcore.settings import Settings


F = TypeVar("F", bound=Callable[..., Any])


class NumberRange(click.FloatRange):
    """`click.FloatRange`, which takes NaN for a number within any bounds, without it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; fail for what is none, is not finite or lies beyond the bounds."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


class _Completed(click.ParamType[str]):
    """A text for which the shell offers values; what goes wrong offers and prints nothing."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the values that begin so."""
        from click.shell_completion import CompletionItem

        values: list[str] = []
        with suppress(Exception):
            values.extend(self.values(ctx))
        return [CompletionItem(value) for value in values if value.startswith(incomplete)]

    def values(self, ctx: click.Context) -> Iterator[str]:
        """Yield the values."""
        raise NotImplementedError


class RunName(_Completed):
    """The name of a run. Offered are its words, and the newest ids of a store that is a folder."""

    def values(self, ctx: click.Context) -> Iterator[str]:
        """Yield the values."""
        yield from ("latest", "last", "last-pass", "main")
        store = ctx.params.get("store") or settings().store
        if "://" not in store:
            runs = (path.name for path in Path(store).glob("runs/*/*"))
            yield from sorted(runs, reverse=True)[:_OFFERED_RUNS]


class _CaseId(_Completed):
    """The id of a case. Offered are those of the suite files in the line."""

    def values(self, ctx: click.Context) -> Iterator[str]:
        """Yield the values."""
        from evalcore.formats.documents import read_document

        # A flag without its value ends the parsing: the files are not arguments yet.
        for file in (*(ctx.params.get("suites") or ()), *ctx.args):
            document: Any = read_document(Path(file), file).value
            for key in ("tests", "cases", "evals"):
                for case in document.get("eval", document).get(key, ()):
                    yield str(case.get("id") or case["name"])


AS_JSON = "evalcore.as_json"
"""In a context's `meta`: whether the command prints JSON."""
_OFFERED_RUNS: Final = 50


def _note_json(context: click.Context, _: click.Parameter, value: bool) -> bool:
    context.meta[AS_JSON] = value
    return value


def _choose_log(_ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
    """Choose the log of this process, and of those that it starts."""
    if value is not None:
        os.environ["EVALCORE_LOG"] = value


def _log_all(_ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        chosen = os.environ.get("EVALCORE_LOG", "").partition(":")[0]
        form = chosen if chosen in ("json", "text") else "text"
        os.environ["EVALCORE_LOG"] = f"{form}:debug"


run_argument = click.argument("run_id", metavar="RUN", type=RunName())
store_option = click.option(
    "--store",
    metavar="ADDRESS",
    help="A folder or s3://bucket/prefix.  [default: EVALCORE_STORE, else .evalcore]",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_note_json, help="Print JSON, and nothing else."
)
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Show more.")
log_option = click.option(
    "--log-format",
    type=click.Choice(["json", "text", "off"]),
    callback=_choose_log,
    expose_value=False,
    help="Structured log lines on standard error.  [default: EVALCORE_LOG, else off]",
)
debug_option = click.option(
    "--debug",
    is_flag=True,
    callback=_log_all,
    expose_value=False,
    help="Log every event on standard error.",
)
mode_option = click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    help="Where replies of providers come from.  [default: live]",
)
import_option = click.option(
    "--allow-import",
    "imports",
    multiple=True,
    metavar="MODULE",
    help="A module outside the suite's folder that suites may import; repeatable.",
)


def suite_options(command: F) -> F:
    """Add the suite files and the options that choose and override what they say."""
    files = click.argument("suites", nargs=-1, metavar="SUITE...", type=click.Path(readable=False))
    return files(override_options(command))


def override_options(command: F) -> F:
    """Add the options that choose and override what a suite file says."""
    for add in reversed(
        (
            click.option("--format", "format_", metavar="FORMAT", help="Format of the files."),
            click.option("--script", metavar="FILE", help=_SCRIPT_HELP),
            click.option("--target", metavar="NAME", help="Target instead of the suite's."),
            click.option("--variant", "variants", multiple=True, help=_only("this variant")),
            click.option(
                "--case",
                "cases",
                multiple=True,
                type=_CaseId(),
                metavar="ID",
                help=_only("this case"),
            ),
            click.option(
                "--cases",
                "case_lists",
                multiple=True,
                metavar="ID,ID",
                hidden=True,
                help=_only("these cases"),
            ),
            click.option("--tag", "tags", multiple=True, help=_only("cases with this tag")),
            click.option(
                "--exclude-tag",
                "excluded",
                multiple=True,
                help="No case with this tag; repeatable.",
            ),
            click.option("--gate", "gates", multiple=True, metavar="NAME=VALUE", help=_GATE_HELP),
            click.option("--baseline", metavar="NAME", help=_BASELINE_HELP),
            click.option("--threshold", type=NumberRange(0, 1), help="Instead of the suite's."),
            click.option(
                "-n",
                "--iterations",
                type=_IterationsType(),
                metavar="N|auto[:MAX]",
                help=_ITERATIONS_HELP,
            ),
            click.option(
                "--stop-when-decided/--no-stop-when-decided", default=None, help=_STOP_HELP
            ),
            click.option("--concurrency", type=click.IntRange(min=1), help=_CONCURRENCY_HELP),
            click.option("--strict", is_flag=True, help="Treat warnings as errors."),
        )
    ):
        command = add(command)
    return command


def _only(what: str) -> str:
    return f"Only {what}; repeatable."


class _IterationsType(click.ParamType[Iterations]):
    """A number of iterations, or `auto[:MAX]`."""

    name = "N|auto[:MAX]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Iterations:
        if isinstance(value, Iterations):
            return value
        try:
            return parse_iterations(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_ITERATIONS_HELP = "Runs of each case; auto: until the gates are decided, at most MAX (8)."
_SCRIPT_HELP = "The script of script suites: a file or module:resource.yaml."
_CONCURRENCY_HELP = "Items at the same time, in each process of the run."
_STOP_HELP = "Run cases in random order, and stop as soon as the gates are decided."
_BASELINE_HELP = "Compare with this variant, named baseline or run."
_GATE_HELP = "Instead of the suite's gates, repeatable: NAME, NAME=VALUE or NAME:key=value,…"


def settings() -> Settings:
    """Return the configuration of this process."""
    from evalcore.settings import read_settings

    return read_settings(os.environ, Path.cwd())


def chosen_store(address: str | None) -> ObjectStore:
    """Return the store that `--store`, the environment or the configuration names."""
    return open_store(address or settings().store)


def load_options(
    flags: dict[str, Any],
    store: str | None = None,
    allow_imports: Sequence[str] | None = None,
) -> LoadOptions:
    """Return what the options of `suite_options` lay over a suite.

    Files of tests may lie below the store at `store`, by default the configured one. With
    `allow_imports` (those of `--allow-import`) a function that is not there is a mistake.
    """
    from evalcore.formats.options import LoadOptions
    from evalcore.gates.registry import parse_gate_options

    configured = settings()
    allowed = None if allow_imports is None else (*configured.allow_imports, *allow_imports)
    listed = [case for text in flags["case_lists"] for case in _split(text)]
    iterations = flags["iterations"]
    is_auto = iterations is not None and iterations.auto
    if is_auto and flags.get("stop_when_decided"):
        raise UsageError("--iterations auto decides after whole iterations: no --stop-when-decided")
    return LoadOptions(
        format=flags["format_"],
        target=flags["target"],
        threshold=flags["threshold"],
        iterations=None if iterations is None else iterations.most,
        gates=parse_gate_options(flags["gates"], "--gate"),
        concurrency=flags["concurrency"],
        cases=frozenset([*flags["cases"], *listed]),
        tags=frozenset(flags["tags"]),
        excluded_tags=frozenset(flags["excluded"]),
        variants=frozenset(flags["variants"]),
        baseline=flags.get("baseline"),
        strict=flags["strict"],
        allow_imports=allowed,
        script=flags.get("script"),
        stop_when_decided=flags.get("stop_when_decided"),
        auto_iterations=is_auto,
    ).configured(configured, os.environ, store)


def _split(text: str) -> Iterable[str]:
    """Return the ids of a list; raise `UsageError` without any, which would select every case."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageError("--cases is empty; omit it to run all cases")
    return parts


_AGE: Final = re.compile(r"(\d{1,5})([hdw])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}


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
            self.fail(f"invalid age {value!r}: use hours, days or weeks: 12h, 90d, 2w", param, ctx)
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


REPORT_FORMS: Final = {"xml": "junit", "html": "html"}
ROW_FORMS: Final = ("jsonl", "csv", "parquet")


def _paths(_ctx: click.Context, _option: click.Parameter, names: Sequence[str]) -> list[Path]:
    """Return the files; what cannot be written is refused before anything runs."""
    paths = [Path(name) for name in names]
    for path in paths:
        if kind_of(path) not in (*ROW_FORMS, *REPORT_FORMS):
            endings = ", ".join(f".{name}" for name in (*ROW_FORMS, *REPORT_FORMS))
            raise UsageError(f"--export: '{path}' ends in none of {endings}")
        if path.is_dir() or not path.absolute().parent.is_dir():
            reason = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise UsageError(f"--export: {path}: {reason}")
    return paths


export_option = click.option(
    "--export",
    "exports",
    multiple=True,
    metavar="FILE",
    callback=_paths,
    help="Write rows (.jsonl, .csv, .parquet) or the report (.xml, .html) to FILE; repeatable.",
)


def kind_of(path: Path) -> str:
    """Return what a file's name ends in, without the dot."""
    return path.suffix.lower().removeprefix(".")


def check_exports(exports: Sequence[Path], suites: int) -> None:
    """Raise `UsageError` for a file that cannot hold several suites."""
    for path in exports:
        if suites > 1 and kind_of(path) != "jsonl":
            raise UsageError(f"--export: {path}: of several suites only .jsonl holds the rows")


def suite_name(suite: str, store: str | None) -> str:
    """Return the name of a suite: the text itself, or what its file says."""
    path = Path(suite)
    try:
        is_file = path.is_file()
    except OSError:  # a name too long for a file
        is_file = False
    if not is_file:
        return suite
    return load_plainly(path, store).definition.name


def load_plainly(path: Path, store: str | None = None) -> Suite:
    """Return the suite of a file as it is. Secrets that it refers to need not be set."""
    from evalcore.formats.options import LoadOptions
    from evalcore.formats.registry import load_suite

    options = LoadOptions(secrets_required=False).configured(settings(), os.environ, store)
    return load_suite(path, options)


INTERRUPTED: Final = 130
"""The exit code of a command that Ctrl-C ended as it is meant to."""


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """End the command with `INTERRUPTED`, and without a message, on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
