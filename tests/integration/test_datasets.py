"""Datasets in a bucket: promotions at once, captures through a store that fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from evalcore.capture import flush_captures
from evalcore.capture.decorator import capture
from evalcore.datasets.catalogue import DatasetCatalogue
from evalcore.datasets.pending import Acceptance, PendingReader, promote
from evalcore.datasets.reference import DatasetReference
from evalcore.datasets.store import find_version, read_dataset, version_cases
from evalcore.storage.address import open_store
from tests.support.captured import pending_records
from tests.support.pending_captures import write_captures
from tests.support.servers import BUCKET, Fault, S3Server, faulty_proxy

pytestmark = [pytest.mark.s3, pytest.mark.multiprocess]


def test_promotions_at_once_lose_no_capture(tmp_path: Path, s3: S3Server) -> None:
    store = open_store(f"s3://{BUCKET}/{tmp_path.name}")
    write_captures(store, {f"question {number}": "x" for number in range(8)})
    ids = [capture.id for capture in PendingReader(store).read(read_dataset(store, "support"))]
    start = Barrier(4)

    def accept(number: int) -> None:
        start.wait()
        mine = [Acceptance(each) for each in ids[number * 2 : number * 2 + 2]]
        promote(store, "support", mine)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(accept, range(4)))
    cases = version_cases(store, find_version(store, DatasetReference("support")))
    assert {case["input"] for case in cases} == {f"question {number}" for number in range(8)}
    assert DatasetCatalogue(store).datasets() == (("support", 4, 8, 0),)


def test_captures_outlast_answers_that_fail_or_get_lost(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"s3://{BUCKET}/{tmp_path.name}"
    direct = open_store(address)
    with faulty_proxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        through = open_store(address)
        proxy.inject(Fault(status=503, method="PUT"), Fault(loses_answer=True, method="PUT"))
        for number in range(5):
            capture("support", input=f"question {number}", output="x", store=through)
        while len(pending_records(direct)) < 5:
            assert flush_captures(60)
    written = [record["input"] for record in pending_records(direct)]
    assert sorted(written) == [f"question {number}" for number in range(5)]
    assert proxy.unused == ()
