"""The S3 store of `evalcore dev --s3` goes on where it was when it is started again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evalcore.prefect.dev_servers import BUCKET, LocalS3, start_s3
from evalcore.storage.address import open_store
from tests.support.servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.multiprocess]


def while_it_runs(folder: Path, act: Callable[[LocalS3], None]) -> None:
    store = start_s3(folder, free_port())
    try:
        store.wait_until_ready()
        act(store)
    finally:
        store.server.stop(30.0)


def test_a_store_that_is_started_again_has_its_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(store: LocalS3) -> None:
        connect(store)
        open_store(f"s3://{BUCKET}/runs").put("a/b", b"kept")

    def read(store: LocalS3) -> None:
        connect(store)
        assert open_store(f"s3://{BUCKET}/runs").get("a/b").data == b"kept"

    def connect(store: LocalS3) -> None:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)

    while_it_runs(tmp_path, write)
    while_it_runs(tmp_path, read)
