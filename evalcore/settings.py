"""The configuration: environment variables and `evalcore.toml`, the environment first.

Read by hand rather than by pydantic-settings, whose import alone takes as long as a small run
(docs/decisions/0005).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from evalcore.errors import SettingsError
from evalcore.model.evidence import TOKEN_PRICES
from evalcore.model.notification import LITERAL_ADDRESS, VARIABLE_NAME, NotifyOn, NotifyPolicy
from evalcore.model.suite import ProviderLimits
from evalcore.redaction.redactor import PROCESS
from evalcore.repository import find_upward

FILE_NAME = "evalcore.toml"
DEFAULT_STORE = ".evalcore"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run takes from its surroundings rather than from its suite.

    `store`: a folder or `s3://bucket/prefix` (EVALCORE_STORE). `allow_imports`: modules that a
    suite may import from anywhere (EVALCORE_ALLOW_IMPORTS, separated by commas).
    `readable_names`: environment variables that a suite may read (EVALCORE_READABLE_NAMES).
    `rate_limits`: which installed package keeps rate limits for all workers
    (EVALCORE_RATE_LIMITS). `redact_patterns`: regular expressions of what nothing may hold
    (EVALCORE_REDACT_PATTERNS, one a line). `log`: structured log lines on standard error
    (EVALCORE_LOG: json, text, off; `json:debug`). `otel`: spans and metrics to OpenTelemetry
    (EVALCORE_OTEL, else on where OpenTelemetry's own variables name a receiver); `otel_content`:
    with inputs, outputs and messages of errors (EVALCORE_OTEL_CONTENT). `allow_datasets`: addresses
    of object stores below which a suite may name files of tests, beside those in the configured
    store (EVALCORE_ALLOW_DATASETS, separated by commas). `lease_s`: after twice as many seconds
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
    allow_imports: tuple[str, ...] = ()
    readable_names: tuple[str, ...] = ()
    rate_limits: str | None = None
    redact_patterns: tuple[str, ...] = ()
    log: str | None = None
    otel: bool = False
    otel_content: bool = False
    allow_datasets: tuple[str, ...] = ()
    allow_commands: bool = False
    allow_unconfined_code: bool = False
    allow_stores: tuple[str, ...] = ()
    allow_addresses: tuple[str, ...] = ()
    allow_runners: tuple[str, ...] = ()
    lease_s: float = 20.0
    stall_s: float = 60.0
    take_up_s: float = 60.0
    workspaces: str | None = None
    viewer_url: str | None = None
    isolation: str = "process"
    providers: Mapping[str, ProviderLimits] = field(default_factory=dict)
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    notify: NotifyPolicy | None = None


DEFAULT_SETTINGS = Settings()


def read_settings(environment: Mapping[str, str], folder: Path) -> Settings:
    """Return the settings; `evalcore.toml` is looked for up to the root of a repository.

    Raises `SettingsError` that names the file and the key.
    """
    values: dict[str, Any] = {}
    path = find_upward(folder, (FILE_NAME,)).path
    if path is not None:
        values = _read_file(path)
    for name in (*_TEXTS, *_LISTS):
        text = environment.get(f"EVALCORE_{name.upper()}")
        if text:
            values[name] = text if name in _TEXTS else _split(text)
    _read_switches(environment, values)
    text = environment.get("EVALCORE_REDACT_PATTERNS")
    if text:
        try:
            values["redact_patterns"] = _patterns(text.splitlines())
        except ValueError as error:
            raise SettingsError(f"EVALCORE_REDACT_PATTERNS{error}") from None
    _read_durations(environment, values)
    text = environment.get("EVALCORE_VIEWER_URL")
    if text:
        try:
            values["viewer_url"] = _web_address(text)
        except ValueError as error:
            raise SettingsError(f"EVALCORE_VIEWER_URL{error}") from None
    text = environment.get("EVALCORE_ISOLATION")
    if text:
        try:
            values["isolation"] = _isolation(text)
        except ValueError as error:
            raise SettingsError(f"EVALCORE_ISOLATION{error}") from None
    settings = Settings(**values)
    # Every process that executes or shows anything reads its settings first.
    PROCESS.learn_environment(environment, settings.readable_names)
    PROCESS.learn((), settings.redact_patterns)
    return settings


def ignored_settings(folder: Path) -> tuple[str, ...]:
    """Return why files `evalcore.toml` do not count that lie nearer than the one that does."""
    return tuple(map(str, find_upward(folder, (FILE_NAME,)).refused))


_NAMES = tuple(field.name for field in fields(Settings))
_TEXTS = ("store", "rate_limits", "workspaces")
_LISTS = (
    "allow_imports",
    "readable_names",
    "allow_datasets",
    "allow_stores",
    "allow_addresses",
    "allow_runners",
)
_SWITCHES = ("otel", "otel_content", "allow_commands", "allow_unconfined_code")
_DURATIONS = ("lease_s", "stall_s", "take_up_s")
_SECONDS_WANTED = "expected seconds, 0.1 to 3600"
PRICES = ("input", "output", *(price for price, _ in TOKEN_PRICES.values()))
"""The kinds of tokens that `[prices."MODEL"]` can price."""


def _read_file(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        raw = tomllib.loads(path.read_text("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{path}: {error}") from error
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in _NAMES:
            raise SettingsError(f"{path}: unknown key '{name}'; known: {', '.join(_NAMES)}")
        try:
            values[name] = _READERS[name](value)
        except ValueError as error:
            raise SettingsError(f"{path}: {name}{error}") from None
    return values


def _read_durations(environment: Mapping[str, str], values: dict[str, Any]) -> None:
    """Add what the environment says of times in seconds."""
    for name in _DURATIONS:
        text = environment.get(f"EVALCORE_{name.upper()}")
        if text:
            try:
                values[name] = _seconds(float(text))
            except ValueError:
                raise SettingsError(f"EVALCORE_{name.upper()}: {_SECONDS_WANTED}") from None


def _read_switches(environment: Mapping[str, str], values: dict[str, Any]) -> None:
    """Add what the environment says of logs and telemetry."""
    # OpenTelemetry's own variables are read by every program of a machine: our own word counts
    # more, in the environment as in the file.
    if "otel" not in values:
        values["otel"] = _is_receiver_named(environment)
    readers: dict[str, Callable[[str], object]] = {"log": _log, "otel": _switch}
    for name in ("log", *_SWITCHES):
        text = environment.get(f"EVALCORE_{name.upper()}")
        if text:
            try:
                values[name] = readers.get(name, _switch)(text)
            except ValueError as error:
                raise SettingsError(f"EVALCORE_{name.upper()}{error}") from None


def _is_receiver_named(environment: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's variables name a receiver, and what sends to it is installed.

    They may be meant for other programs: without the extra nothing is sent, and nothing is wrong.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if not any(environment.get(name) for name in _RECEIVERS):
        return False
    from importlib.util import find_spec

    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except (ImportError, ValueError):
        return False


_RECEIVERS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in _ON | _OFF:
        raise ValueError(f": {value!r} is neither on nor off: 1 or 0 would work")
    return word in _ON


_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})


def parse_log(text: str) -> tuple[str, str] | None:
    """Return format and least level of log lines, None for `off`; else raise `ValueError`."""
    form, _, level = text.strip().partition(":")
    if form == "off" and not level:
        return None
    level = level or "info"
    if form not in LOG_FORMATS or level not in LOG_LEVELS:
        raise ValueError(
            f": {text!r} is no form of log lines: json, text or off; a level may follow, as in "
            f"json:debug ({', '.join(LOG_LEVELS)})"
        )
    return form, level


LOG_FORMATS = ("json", "text")
LOG_LEVELS = ("debug", "info", "warning", "error")


def _log(value: object) -> str:
    text = _text(value)
    parse_log(text)
    return text


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(": expected text")
    return value


def _web_address(value: object) -> str:
    """Return an address that pages can be appended to."""
    from urllib.parse import urlsplit

    text = _text(value).strip()
    try:
        parts = urlsplit(text)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        sound = False
    if not sound or parts.query or parts.fragment or parts.username or any(map(str.isspace, text)):
        raise ValueError(f": {text!r} is no address such as https://evals.example.org/ui")
    return text.rstrip("/")


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(": expected a list of texts")
    return tuple(value)


def _seconds(value: object) -> float:
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    if not sound or not 0.1 <= float(value) <= 3_600:  # type: ignore[arg-type]  # sound
        raise ValueError(f": {_SECONDS_WANTED}")
    return float(value)  # type: ignore[arg-type]  # sound


def _notify(value: object) -> NotifyPolicy:
    if not isinstance(value, dict) or set(value) - {"to", "on"}:
        raise ValueError(": expected a table with to and on")
    names = _texts(value.get("to"))
    for index, name in enumerate(names):
        if not VARIABLE_NAME.match(name):
            raise ValueError(f".to[{index}]: {LITERAL_ADDRESS}")
    on = value.get("on", NotifyOn.CHANGE)
    if on not in set(NotifyOn):
        raise ValueError(f".on: expected {', '.join(NotifyOn)}")
    return NotifyPolicy(names, NotifyOn(on))


def _isolation(value: object) -> str:
    if value not in ("process", "inline"):
        raise ValueError(f": {value!r} is neither process nor inline")
    return str(value)


def _patterns(value: object) -> tuple[str, ...]:
    import re

    patterns = tuple(text for text in _texts(value) if text.strip())
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f": {pattern!r} is no regular expression: {error}") from None
    return patterns


def _providers(value: object) -> dict[str, ProviderLimits]:
    keys = tuple(field.name for field in fields(ProviderLimits))
    limits = {}
    for name, bounds in _tables(value, keys).items():
        for key, bound in bounds.items():
            if bound <= 0:
                raise ValueError(f".{name}.{key}: expected a number above 0")
            if key == "max_concurrency" and not isinstance(bound, int):
                raise ValueError(f".{name}.{key}: expected a whole number")
        limits[name] = ProviderLimits(**bounds)
    return limits


def _prices(value: object) -> dict[str, dict[str, float]]:
    tables = _tables(value, (*PRICES, "batch"))
    for name, price in tables.items():
        missing = [key for key in ("input", "output") if key not in price]
        if missing:
            raise ValueError(f".{name}: '{missing[0]}' is missing (US dollars per million tokens)")
    return tables


def _tables(value: object, keys: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return tables by name whose keys are `known` and whose values are numbers of 0 or more."""
    if not isinstance(value, dict):
        raise ValueError(": expected a table for each name")
    for name, table in value.items():
        if not isinstance(table, dict):
            raise ValueError(f".{name}: expected a table with {', '.join(keys)}")
        for key, number in table.items():
            if key not in keys:
                raise ValueError(f".{name}: unknown key '{key}'; known: {', '.join(keys)}")
            sound = isinstance(number, int | float) and not isinstance(number, bool)
            if not sound or not 0 <= number < float("inf"):
                raise ValueError(f".{name}.{key}: expected a number of 0 or more")
    return value


_READERS: Mapping[str, Callable[[object], Any]] = {
    "store": _text,
    "rate_limits": _text,
    "allow_imports": _texts,
    "readable_names": _texts,
    "redact_patterns": _patterns,
    "log": _log,
    "otel": _switch,
    "otel_content": _switch,
    "allow_datasets": _texts,
    "allow_commands": _switch,
    "allow_unconfined_code": _switch,
    "allow_stores": _texts,
    "allow_addresses": _texts,
    "lease_s": _seconds,
    "stall_s": _seconds,
    "take_up_s": _seconds,
    "workspaces": _text,
    "viewer_url": _web_address,
    "isolation": _isolation,
    "providers": _providers,
    "notify": _notify,
    "prices": _prices,
}


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
