"""What a flow's parameters may name on this worker: suites below its folder, stores it allows.

Parameters come over the network, from anyone who may trigger a deployment. They choose among what
the worker is configured for and grant nothing (docs/reference/trust.md).
"""

from __future__ import annotations

import os
from pathlib import Path

from evalcore.errors import NotAllowedError
from evalcore.pipeline.acceptance import AcceptingWorker
from evalcore.settings import Settings, read_settings
from evalcore.storage.address import open_store
from evalcore.storage.store import ObjectStore
from evalcore.trust.addresses import folder_of_store, is_allowed_store


def this_worker() -> AcceptingWorker:
    """Return what this process allows."""
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
