"""The configuration: environment variables and `evalcore.toml`, the environment first.

Files are looked for from a folder upward to the root of its repository and never above
(docs/reference/trust.md). One counts only if no other user can have put it there.
Read without pydantic-settings, whose import alone takes as long as a small run
(docs/decisions/0005).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import accumulate
from operator import truediv
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import orjson
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    with_config,
)

from evalcore.errors import SettingsError
from evalcore.model.evidence import TOKEN_PRICES
from evalcore.model.run import NotifyPolicy
from evalcore.model.suite import ProviderLimits
from evalcore.redaction.redactor import PROCESS
from evalcore.shapes import explain

FILE_NAME = "evalcore.toml"
DEFAULT_STORE = ".evalcore"
LOG_FORMATS = ("json", "text")
LOG_LEVELS = ("debug", "info", "warning", "error")
PRICES = ("input", "output", *(price for price, _ in TOKEN_PRICES.values()))
"""The kinds of tokens that `[prices."MODEL"]` can price."""


def parse_log(text: str) -> tuple[str, str] | None:
    """Return format and least level of log lines, None for `off`; else raise `ValueError`."""
    form, _, level = text.strip().partition(":")
    if form == "off" and not level:
        return None
    level = level or "info"
    if form not in LOG_FORMATS or level not in LOG_LEVELS:
        raise ValueError(
            f"{text!r} is no form of log lines: json, text or off; a level may follow, as in "
            f"json:debug ({', '.join(LOG_LEVELS)})"
        )
    return form, level


def _log(text: str) -> str:
    parse_log(text)
    return text


def _list(value: object) -> object:
    """Return what stands between the commas of a variable, or in a list of the file."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(value) if isinstance(value, list) else value


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None
    return text


def _lines(value: object) -> object:
    lines = value.splitlines() if isinstance(value, str) else value
    return tuple(line for line in lines if line != "") if isinstance(lines, list) else lines


def _web_address(text: str) -> str:
    """Return an address that pages can be appended to."""
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#@]*)?", text := text.strip()):
        raise ValueError(f"{text!r} is no address such as https://evals.example.org/ui")
    return text.rstrip("/")


def _price(price: Mapping[str, float]) -> Mapping[str, float]:
    for key in price:
        if key not in (*PRICES, "batch"):
            raise ValueError(f"unknown key '{key}'; known: {', '.join((*PRICES, 'batch'))}")
    for key in ("input", "output"):
        if key not in price:
            raise ValueError(f"'{key}' is missing (US dollars per million tokens)")
    return price


_Texts: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_list)]
_Switch: TypeAlias = Annotated[bool, Field(strict=False)]
_Seconds: TypeAlias = Annotated[float, Field(strict=False, ge=0.1, le=3600)]
_Patterns: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_pattern)], ...], BeforeValidator(_lines)
]
_Amount: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, slots=True)
class Settings:
    """What a run takes from its surroundings rather than from its suite.

    `store`: a folder or `s3://bucket/prefix` (EVALCORE_STORE). `allow_imports`: modules that a
    suite may import from anywhere (EVALCORE_ALLOW_IMPORTS, separated by commas).
    `readable_names`: environment variables that a suite may read (EVALCORE_READABLE_NAMES).
    `rate_limits`: which installed package keeps rate limits for all workers
    (EVALCORE_RATE_LIMITS). `redact_patterns`: regular expressions of what nothing may hold
    (EVALCORE_REDACT_PATTERNS, one a line). `log`: structured log lines on standard error
    (EVALCORE_LOG: json, text, off; `json:debug`). `otel`: spans to OpenTelemetry
    (EVALCORE_OTEL). `lease_s`: after twice as many seconds
    without a renewal another machine may take over a run (EVALCORE_LEASE_S). `stall_s`: after so
    many seconds with nothing committed no Prefect server is waited for that does not answer
    (EVALCORE_STALL_S). `take_up_s`: after so many seconds the service executes a run itself that
    no worker of Prefect has begun (EVALCORE_TAKE_UP_S).
    `allow_commands`: plans that this process does not trust, and deployments, may start programs
    (EVALCORE_ALLOW_COMMANDS). `allow_unconfined_code`: code of workflows that were registered with
    the service runs with the service's rights (EVALCORE_ALLOW_UNCONFINED_CODE). `allow_stores`:
    stores, beside the configured one, that a deployment may be asked to use, or prefixes of them
    (EVALCORE_ALLOW_STORES, separated by commas). `allow_runners`: clusters that a deployment may be
    asked to execute shards on (EVALCORE_ALLOW_RUNNERS, such as `dask=tcp://scheduler:8786`,
    separated by commas). `allow_addresses`: what such plans may ask beside the providers that the
    environment and `targets.yaml` name, and registered workflows beside public addresses
    (EVALCORE_ALLOW_ADDRESSES, separated by commas).
    `workspaces`: the folder that tests' workspaces stand in (EVALCORE_WORKSPACES), by default one
    in the system's temporary folder. `isolation`: where the Python of suites in files runs,
    `process` or `inline` (EVALCORE_ISOLATION). In the file only: `providers`, by name or protocol
    (`[providers.NAME]` with requests_per_minute, tokens_per_minute, max_concurrency), and `prices`
    by model (`[prices."MODEL"]` with the kinds of `PRICES` and `batch`), which go before the known
    ones;
    `notify` (`[notify]` with to and on): who is told of decisions of suites that name no one.
    """

    store: str = DEFAULT_STORE
    allow_imports: _Texts = ()
    readable_names: _Texts = ()
    rate_limits: str | None = None
    redact_patterns: _Patterns = ()
    log: Annotated[str, AfterValidator(_log)] | None = None
    otel: _Switch = False
    allow_commands: _Switch = False
    allow_unconfined_code: _Switch = False
    allow_stores: _Texts = ()
    allow_addresses: _Texts = ()
    allow_runners: _Texts = ()
    lease_s: _Seconds = 20.0
    stall_s: _Seconds = 60.0
    take_up_s: _Seconds = 60.0
    workspaces: str | None = None
    viewer_url: Annotated[str, AfterValidator(_web_address)] | None = None
    isolation: Literal["process", "inline"] = "process"
    providers: Mapping[str, ProviderLimits] = field(default_factory=dict)
    prices: Mapping[str, Annotated[Mapping[str, _Amount], AfterValidator(_price)]] = field(
        default_factory=dict
    )
    notify: NotifyPolicy | None = None


DEFAULT_SETTINGS = Settings()
_IN_FILE_ONLY: Final = frozenset({"providers", "prices", "notify"})


def read_settings(environment: Mapping[str, str], folder: Path) -> Settings:
    """Return the settings; `evalcore.toml` is looked for up to the root of a repository.

    Raises `SettingsError` that names the file, or the variable, and the key.
    """
    path = find_upward(folder, (FILE_NAME,)).path
    values = {} if path is None else _read_file(path)
    variables = {
        each.name: variable
        for each in fields(Settings)
        if each.name not in _IN_FILE_ONLY
        and environment.get(variable := f"EVALCORE_{each.name.upper()}")
    }
    values |= {name: environment[variable] for name, variable in variables.items()}
    settings = _validated(values, path, variables) if values else DEFAULT_SETTINGS
    # Every process that executes or shows anything reads its settings first.
    PROCESS.learn_environment(environment, settings.readable_names)
    PROCESS.learn((), settings.redact_patterns)
    return settings


def ignored_settings(folder: Path) -> tuple[str, ...]:
    """Return why files `evalcore.toml` do not count that lie nearer than the one that does."""
    return tuple(map(str, find_upward(folder, (FILE_NAME,)).refused))


def _read_file(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{path}: {error}") from error


def _validated(
    values: Mapping[str, Any], path: Path | None, variables: Mapping[str, str]
) -> Settings:
    try:
        # As in JSON a list is a tuple, and a text may name a member of an enumeration.
        return _reader().validate_json(orjson.dumps(values))
    except ValidationError as error:
        mistakes = []
        for loc, message in explain(error, values, Settings):
            variable = variables.get(str(loc[0]))
            key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
            place = f"{path}: {key[1:]}" if variable is None else variable
            mistakes.append(f"{place}: {message}")
        raise SettingsError("\n".join(mistakes)) from None


@cache
def _reader() -> TypeAdapter[Settings]:
    return TypeAdapter(Settings)


_MARK = ".git"


class Refused(NamedTuple):
    """A file that was looked for and does not count, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is not read: {self.reason}"


class Upward(NamedTuple):
    """The nearest file that counts (resolved), if there is one, and those that were passed over."""

    path: Path | None
    refused: tuple[Refused, ...] = ()


def repository_root(folder: Path) -> Path:
    """Return the nearest folder upward from `folder` with a `.git`, else `folder` (resolved).

    A `.git` may be a file, as in a worktree. One that belongs to another user is none.
    """
    start = folder.resolve()
    owners = _owners(start)
    for candidate in (start, *start.parents):
        with suppress(OSError):
            if (candidate / _MARK).lstat().st_uid in owners:
                return candidate
    return start


def find_upward(folder: Path, names: Sequence[str]) -> Upward:
    """Return the nearest of the files `names` from `folder` up to the root of its repository.

    Within a folder the first of the names wins.
    """
    start = folder.resolve()
    root, owners = repository_root(start), _owners(start)
    refused: list[Refused] = []
    for ancestor in ancestors_within(start, root):
        for name in names:
            path = ancestor / name
            if not _is_file(path):
                continue
            resolved = path.resolve()
            steps = [*accumulate(Path(name).parts, truediv, initial=ancestor)][1:]
            reasons = (_reason(each, owners) for each in (*steps, resolved))
            reason = next(filter(None, reasons), None)
            if not resolved.is_relative_to(root):
                reason = f"the link leads outside {root}"
            if reason is None:
                return Upward(path, tuple(refused))
            refused.append(Refused(path, reason))
    return Upward(None, tuple(refused))


def ancestors_within(folder: Path, root: Path) -> Iterator[Path]:
    """Yield the folder and those above it, up to `root`."""
    for ancestor in (folder, *folder.parents):
        yield ancestor
        if ancestor == root:
            return


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name no file system takes: too long, or with a NUL
        return False


def _owners(folder: Path) -> frozenset[int]:
    """Return the users who may say what applies to a suite: ourselves, root, the folder's owner.

    Who owns the suite's folder wrote the suite, or could have: as root in a container, say, that
    works on a folder of the machine.
    """
    with suppress(OSError):
        return frozenset({os.geteuid(), 0, folder.stat().st_uid})
    return frozenset({os.geteuid(), 0})


def _reason(path: Path, owners: frozenset[int]) -> str | None:
    """Return why others may have put something at `path`; None if they cannot."""
    try:
        folder, entry = path.parent.stat(), path.lstat()
    except OSError as error:
        return error.strerror or str(error)
    if entry.st_uid not in owners:
        return "it belongs to another user"
    if folder.st_uid not in owners:
        return f"the folder {path.parent} belongs to another user"
    mode = folder.st_mode
    # In such a folder everybody removes and replaces only what is their own.
    if mode & stat.S_ISVTX:
        return None
    # A user's own group has, as a rule, one member.
    shared = mode & stat.S_IWGRP and folder.st_gid != os.getegid()
    if shared or mode & stat.S_IWOTH:
        why = f"other users may write to {path.parent} (mode {stat.S_IMODE(mode):o})"
        return f"{why}; `chmod go-w` helps"
    return None
