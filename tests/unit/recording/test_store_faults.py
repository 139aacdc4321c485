"""A store that fails while exchanges are recorded and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from evalcore.errors import StoreError
from evalcore.model.exchange import ProviderError, Reply, request_digest
from evalcore.recording import recorder as recorder_module
from evalcore.storage.layout import recording_key
from evalcore.storage.local import LocalStore
from evalcore.storage.store import StoredObject
from tests.unit.recording.asking import RUN, ask, find, recorder, save

ANSWER = Reply("an answer", model="small", latency_ms=2.0)
MINE = recording_key(request_digest(ask().identity(), iteration=0, invocation=0))


class FailingStore(LocalStore):
    """Fails so many times; with `writes` it takes a new object first and loses the answer."""

    def __init__(self, folder: Path, failures: int, *, writes: bool = False) -> None:
        super().__init__(folder)
        self.failures, self._writes = failures, writes

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("the server answered 500")

    def get(self, key: str) -> StoredObject:
        if not self._writes:
            self._fail()
        return super().get(key)

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        etag = super().put_if_absent(key, data) if self._writes else None
        self._fail()
        return etag if self._writes else super().put_if_absent(key, data)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "_STORE_RETRIES_S", (0.0, 0.0))


@pytest.mark.parametrize("writes", [False, True], ids=["refused", "answer lost"])
def test_a_recording_that_fails_once_is_written_the_next_time(tmp_path: Path, writes: bool) -> None:
    store = FailingStore(tmp_path, 1, writes=writes)
    assert save(recorder(store, "record", RUN), ask(), ANSWER).text == "an answer"
    replayed = find(recorder(store, "replay"), ask())
    assert replayed is not None
    assert replayed.text == "an answer"


def test_a_read_that_fails_once_is_made_again(tmp_path: Path) -> None:
    save(recorder(LocalStore(tmp_path), "record"), ask(), ANSWER)
    assert find(recorder(FailingStore(tmp_path, 1), "replay"), ask()) is not None


@pytest.mark.parametrize("action", [save, find])
def test_a_store_that_stays_away_is_its_own_error_and_says_how_to_go_on(
    tmp_path: Path, action: Any
) -> None:
    arguments = (ask(), ANSWER) if action is save else (ask(),)
    with pytest.raises(StoreError, match=f"answered 500.*run --resume {RUN}") as caught:
        action(recorder(FailingStore(tmp_path, 99), "record", RUN), *arguments)
    assert not isinstance(caught.value, ProviderError)


def test_a_recording_of_version_0_1_has_a_digest_and_is_replayed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    save(recorder(store, "record"), ask(), ANSWER)
    document = orjson.loads(zstandard.decompress(store.get(MINE).data))
    store.put(MINE, zstandard.compress(orjson.dumps(document | {"sha256": "0" * 64})))
    replayed = find(recorder(store, "replay"), ask())
    assert replayed is not None
    assert replayed.text == "an answer"
