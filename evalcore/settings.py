"""The configuration: environment variables and `evalcore.toml`, the environment first.

Read by hand rather than by pydantic-settings, whose import alone takes as long as a small run
(docs/decisions/0005).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from evalcore.errors import SettingsError

FILE_NAME = "evalcore.toml"
DEFAULT_STORE = ".evalcore"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run takes from its surroundings rather than from its suite.

    `store`: a folder or `s3://bucket/prefix` (EVALCORE_STORE). `allow_imports`: modules that a
    suite may import from anywhere (EVALCORE_ALLOW_IMPORTS, separated by commas).
    `readable_names`: environment variables that a suite may read (EVALCORE_READABLE_NAMES).
    """

    store: str = DEFAULT_STORE
    allow_imports: tuple[str, ...] = ()
    readable_names: tuple[str, ...] = ()


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
    for name in _NAMES:
        given = environment.get(f"EVALCORE_{name.upper()}")
        if given:
            values[name] = given if name == "store" else _split(given)
    return Settings(**values)


_NAMES = tuple(field.name for field in fields(Settings))


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
        if name == "store":
            if not isinstance(value, str):
                raise SettingsError(f"{path}: store: expected text")
            values[name] = value
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            values[name] = tuple(value)
        else:
            raise SettingsError(f"{path}: {name}: expected a list of texts")
    return values


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
