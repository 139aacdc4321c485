"""The key that signs plans: `EVALCORE_PLAN_KEY`, else one of the user's own.

A worker executes what a stored plan names, so it has to know who planned it: a plan is accepted
if it is signed with the key. Every run has a key of its own, derived from this one, so the key of
a worker process of one run signs no other.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from evalcore.errors import SettingsError

PLAN_KEY: Final = "EVALCORE_PLAN_KEY"
RUN_KEY: Final = "EVALCORE_RUN_KEY"
_LEAST_CHARACTERS: Final = 16
_FILE: Final = Path("evalcore", "plan.key")


@dataclass(frozen=True)
class PlanKeys:
    """What this process signs plans with, and recognises them by.

    `required` says that a plan that is not signed with it is not executed at all: the key is not
    just the user's own. `of_user` says that it is: no other user and no other machine has it.
    """

    required: bool
    of_user: bool
    _secret: bytes | None = field(repr=False)
    _only_run: str | None = None

    def of_run(self, run_id: str) -> bytes | None:
        """Return the run's own key; None if this process has the key of another run only."""
        if self._secret is None or self._only_run not in (None, run_id):
            return None
        if self._only_run is not None:
            return self._secret
        return hmac.digest(self._secret, f"evalcore plan of run {run_id}".encode(), "sha256")

    def for_worker(self, run_id: str) -> str:
        """Return what `EVALCORE_RUN_KEY` is to a worker process of this run; empty without one."""
        key = self.of_run(run_id)
        return "" if key is None else f"{run_id}:{key.hex()}"


def key_id(key: bytes) -> str:
    """Return what names a run's key without telling it."""
    return hashlib.sha256(b"evalcore key id\0" + key).hexdigest()[:16]


def signature_of(key: bytes, data: bytes) -> str:
    """Return the HMAC-SHA-256 of the data, in hex."""
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def read_plan_keys(environment: Mapping[str, str]) -> PlanKeys:
    """Return this process's keys; raise `SettingsError` for one that is no key.

    Without a key in the environment the user's own is read, made if there is none; where no file
    can hold it, this process has one that ends with it.
    """
    of_run = environment.get(RUN_KEY, "")
    if of_run:
        run_id, _, digits = of_run.partition(":")
        with suppress(ValueError):
            return PlanKeys(True, False, bytes.fromhex(digits), run_id)
        raise SettingsError(f"{RUN_KEY} is no key of a run; `evalcore run --workers` sets it")
    chosen = environment.get(PLAN_KEY, "").strip()
    if chosen:
        if len(chosen) < _LEAST_CHARACTERS:
            message = f"{PLAN_KEY} is too short to be a secret: {_LEAST_CHARACTERS} characters"
            raise SettingsError(f"{message} or more, such as those of `openssl rand -hex 32`")
        return PlanKeys(True, False, chosen.encode("utf-8", "surrogateescape"))
    path = key_file(environment)
    own = None if path is None else _own_key(path)
    return PlanKeys(False, True, own or _key_of_process())


def key_file(environment: Mapping[str, str]) -> Path | None:
    """Return where the user's own key stands (`$XDG_STATE_HOME/evalcore/plan.key`), if anywhere."""
    folder = environment.get("XDG_STATE_HOME", "")
    if folder and Path(folder).is_absolute():
        return Path(folder) / _FILE
    home = environment.get("HOME", "")
    return Path(home, ".local", "state") / _FILE if home and Path(home).is_absolute() else None


def _own_key(path: Path) -> bytes | None:
    """Return the key in the file, made if there is none; None if it cannot be kept secret there."""
    with suppress(OSError, UnicodeDecodeError):
        if not os.path.lexists(path) and _is_own_place(path):
            _write(path)
        return _read(path)
    return None


def _is_own_place(path: Path) -> bool:
    """Whether the folders that are missing would be made in one of this user's own.

    Under `sudo` the home may be another user's, who could not write to what root makes there; and
    a home directly below `/` that is missing (`/nonexistent`) is not meant to be made.
    """
    nearest = next(folder for folder in path.parents if folder.exists())
    return nearest != nearest.parent and nearest.stat().st_uid == os.geteuid()


def _read(path: Path) -> bytes | None:
    status = path.lstat()
    private = status.st_uid == os.geteuid() and not status.st_mode & 0o077
    text = path.read_text("ascii") if private and stat.S_ISREG(status.st_mode) else ""
    with suppress(ValueError):
        return bytes.fromhex(text) if len(text) >= 2 * _LEAST_CHARACTERS else None
    return None


def _write(path: Path) -> None:
    """Make the file with a new key, unless another process just has."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=path.parent) as file:
        file.write(f"{secrets.token_hex(32)}\n")
        file.flush()
        with suppress(FileExistsError):
            os.link(file.name, path)


@cache
def _key_of_process() -> bytes:
    return secrets.token_bytes(32)
