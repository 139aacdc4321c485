"""A stored suite made ready to be executed here: sealed variables get this process's values."""

from __future__ import annotations

import os
from pathlib import Path

import orjson

from evalcore.redaction.sealing import unseal


def open_plan(data: bytes) -> bytes:
    """Return a plan's suite with the values of the variables that it may read.

    They come from the environment, else from the `.env` that belongs to the suite's folder. This
    process covers them from now on; a variable that is not set keeps its sign.
    """
    learn_folder(_folder_of(data))
    return unseal(data)


def learn_folder(folder: Path | None) -> None:
    """Let the redactor learn what a suite of this folder may read here."""
    from evalcore.settings import read_settings
    from evalcore.trust.variables import nearest_env_file, variables_from

    path = None if folder is None or not folder.is_dir() else nearest_env_file(folder)
    names = read_settings(os.environ, Path.cwd()).readable_names
    variables_from(b"" if path is None else path.read_bytes(), os.environ, names)


def _folder_of(data: bytes) -> Path | None:
    source = orjson.loads(data).get("source")
    folder = source.get("folder") if isinstance(source, dict) else None
    return Path(folder) if isinstance(folder, str) and folder else None
