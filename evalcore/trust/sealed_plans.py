"""A stored suite made ready to be executed here: sealed variables get this process's values."""

from __future__ import annotations

from pathlib import Path

import orjson

from evalcore.redaction.sealing import unseal
from evalcore.trust.variables import suite_variables


def open_plan(data: bytes) -> bytes:
    """Return a plan's suite with the values of the variables that it may read.

    They come from the environment, else from the `.env` that belongs to the suite's folder. This
    process covers them from now on; a variable that is not set keeps its sign.
    """
    learn_folder(_folder_of(data))
    return unseal(data)


def learn_folder(folder: Path | None) -> None:
    """Let the redactor learn what a suite of this folder may read here."""
    suite_variables(None if folder is None or not folder.is_dir() else folder)


def _folder_of(data: bytes) -> Path | None:
    source = orjson.loads(data).get("source")
    folder = source.get("folder") if isinstance(source, dict) else None
    return Path(folder) if isinstance(folder, str) and folder else None
