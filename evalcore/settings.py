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
from evalcore.model.suite import ProviderLimits

FILE_NAME = "evalcore.toml"
DEFAULT_STORE = ".evalcore"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run takes from its surroundings rather than from its suite.

    `store`: a folder or `s3://bucket/prefix` (EVALCORE_STORE). `allow_imports`: modules that a
    suite may import from anywhere (EVALCORE_ALLOW_IMPORTS, separated by commas).
    `readable_names`: environment variables that a suite may read (EVALCORE_READABLE_NAMES).
    `rate_limits`: which installed package keeps rate limits for all workers
    (EVALCORE_RATE_LIMITS). `redact_patterns`: regular expressions of what no recording may hold
    (EVALCORE_REDACT_PATTERNS, one a line). `lease_s`: after twice as many seconds without a sign of
    life a worker's shards are taken over by others (EVALCORE_LEASE_S). In the file only:
    `providers`, by name or protocol (`[providers.NAME]` with requests_per_minute,
    tokens_per_minute, max_concurrency), and `prices` by model (`[prices."MODEL"]` with input and
    output), which go before the known ones.
    """

    store: str = DEFAULT_STORE
    allow_imports: tuple[str, ...] = ()
    readable_names: tuple[str, ...] = ()
    rate_limits: str | None = None
    redact_patterns: tuple[str, ...] = ()
    lease_s: float = 20.0
    providers: Mapping[str, ProviderLimits] = field(default_factory=dict)
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


DEFAULT_SETTINGS = Settings()


def read_settings(environment: Mapping[str, str], folder: Path) -> Settings:
    """Return the settings; `evalcore.toml` is looked for from `folder` upward.

    Raises `SettingsError` that names the file and the key.
    """
    values: dict[str, Any] = {}
    for parent in (folder, *folder.parents):
        path = parent / FILE_NAME
        if path.is_file():
            values = _read_file(path)
            break
    for name in (*_TEXTS, *_LISTS):
        given = environment.get(f"EVALCORE_{name.upper()}")
        if given:
            values[name] = given if name in _TEXTS else _split(given)
    given = environment.get("EVALCORE_REDACT_PATTERNS")
    if given:
        try:
            values["redact_patterns"] = _patterns(given.splitlines())
        except ValueError as error:
            raise SettingsError(f"EVALCORE_REDACT_PATTERNS{error}") from None
    given = environment.get("EVALCORE_LEASE_S")
    if given:
        try:
            values["lease_s"] = _seconds(float(given))
        except ValueError:
            raise SettingsError(f"EVALCORE_LEASE_S: {_SECONDS_WANTED}") from None
    return Settings(**values)


_NAMES = tuple(field.name for field in fields(Settings))
_TEXTS = ("store", "rate_limits")
_LISTS = ("allow_imports", "readable_names")
_SECONDS_WANTED = "expected seconds, 0.1 to 3600"
_PRICE_KEYS = ("input", "output")


def _read_file(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        raw = tomllib.loads(path.read_text("utf-8"))
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


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(": expected text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(": expected a list of texts")
    return tuple(value)


def _seconds(value: object) -> float:
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    if not sound or not 0.1 <= float(value) <= 3_600:  # type: ignore[arg-type]  # sound
        raise ValueError(f": {_SECONDS_WANTED}")
    return float(value)  # type: ignore[arg-type]  # sound


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
    known = tuple(field.name for field in fields(ProviderLimits))
    found = {}
    for name, bounds in _tables(value, known).items():
        for key, bound in bounds.items():
            if bound <= 0:
                raise ValueError(f".{name}.{key}: expected a number above 0")
            if key == "max_concurrency" and not isinstance(bound, int):
                raise ValueError(f".{name}.{key}: expected a whole number")
        found[name] = ProviderLimits(**bounds)
    return found


def _prices(value: object) -> dict[str, dict[str, float]]:
    tables = _tables(value, _PRICE_KEYS)
    for name, price in tables.items():
        missing = [key for key in _PRICE_KEYS if key not in price]
        if missing:
            raise ValueError(f".{name}: '{missing[0]}' is missing (US dollars per million tokens)")
    return tables


def _tables(value: object, known: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return tables by name whose keys are `known` and whose values are numbers of 0 or more."""
    if not isinstance(value, dict):
        raise ValueError(": expected a table for each name")
    for name, table in value.items():
        if not isinstance(table, dict):
            raise ValueError(f".{name}: expected a table with {', '.join(known)}")
        for key, number in table.items():
            if key not in known:
                raise ValueError(f".{name}: unknown key '{key}'; known: {', '.join(known)}")
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
    "lease_s": _seconds,
    "providers": _providers,
    "prices": _prices,
}


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
