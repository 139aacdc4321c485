"""The keys of the object layout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.errors import UsageError
from evalcore.storage import layout
from evalcore.storage.layout import NameKey, RunKeys, suite_key
from evalcore.storage.store import check_key

RUN_ID = "20260518T100000Z-0a1b2c"
RUN = RunKeys(suite_key("Support: Tier 1"), RUN_ID)

names = st.text(min_size=1, max_size=300)
moments = st.datetimes(
    min_value=datetime(1970, 1, 2), max_value=datetime(9998, 1, 1), timezones=st.just(UTC)
)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("support", "support"),
        ("Support", "support"),
        ("a-b_c.d9", "a-b_c.d9"),
        ("tier 1/eu", "tier%201%2Feu"),
        ("ÄÖ", "%C3%A4%C3%B6"),
        ("100%", "100%25"),
        ("~", "%7E"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        (".hidden", ".hidden"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_a_name_becomes_a_key(name: str, key: str) -> None:
    assert suite_key(name) == key


def test_a_name_that_is_too_long_for_a_file_is_cut_and_stays_distinct() -> None:
    first, second = suite_key("п" * 100 + "1"), suite_key("п" * 100 + "2")
    assert first != second
    assert len(first) <= 200
    assert first.startswith("%D0%BF" * 29)
    assert suite_key("x" * 200) == "x" * 200


def test_a_name_cannot_be_empty() -> None:
    with pytest.raises(UsageError, match="name is empty"):
        suite_key("")


@given(names)
def test_every_name_gives_one_part_of_a_valid_key(name: str) -> None:
    key = suite_key(name)
    check_key(key)
    assert "/" not in key
    assert len(key) <= 200
    assert suite_key(name.lower()) == key


@given(names, names)
def test_different_names_have_different_keys(first: str, second: str) -> None:
    assert (suite_key(first) == suite_key(second)) == (first.lower() == second.lower())


FOLDER = f"runs/support%3A%20tier%201/{RUN_ID}"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (RUN.manifest, f"{FOLDER}/manifest.json"),
        (RUN.plan_suite, f"{FOLDER}/plan/suite.json"),
        (RUN.plan_part(0), f"{FOLDER}/plan/cases-00000.jsonl.zst"),
        (RUN.result(42), f"{FOLDER}/results/00042.parquet"),
        (RUN.cancel, f"{FOLDER}/CANCEL"),
        (RUN.events_prefix, f"{FOLDER}/events/"),
        (RUN.report, f"{FOLDER}/report.json"),
        (RUN.results_prefix, f"{FOLDER}/results/"),
        (RUN.folder, f"{FOLDER}/"),
        (layout.recording_key("abcd"), "recordings/ab/abcd"),
        (layout.blob_key("abcd"), "blobs/ab/abcd"),
        (layout.baseline_key(RUN.suite, "Main"), "baselines/support%3A%20tier%201/main.json"),
    ],
)
def test_a_key_stands_where_the_specification_says(key: str, expected: str) -> None:
    assert key == expected


@given(moments, st.binary(min_size=3, max_size=3))
def test_a_run_id_tells_when_it_was_made(now: datetime, random: bytes) -> None:
    run_id = layout.new_run_id(now, random)
    assert layout.run_created_at(run_id) == now.replace(microsecond=0)
    assert run_id.endswith(f"Z-{random.hex()}")


def test_a_run_id_is_in_utc() -> None:
    now = datetime(2026, 5, 18, 12, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))
    assert layout.new_run_id(now, b"\x0a\x1b\x2c") == RUN_ID


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        "latest",
        "../..",
        "20260518T100000Z",
        f"{RUN_ID}/x",
        f"{RUN_ID}\n",
        "20269918T100000Z-0a1b2c",
    ],
)
def test_what_is_no_run_id_is_refused(run_id: str) -> None:
    assert layout.run_created_at(run_id) is None
    with pytest.raises(UsageError, match="is not a run id"):
        RunKeys(NameKey("a"), run_id)


@given(st.integers(min_value=0, max_value=10_000_000))
def test_a_shards_keys_lead_back_to_it(shard: int) -> None:
    assert layout.parse_shard_key(RUN.result(shard)) == shard


@pytest.mark.parametrize(
    "key", ["", RUN.manifest, RUN.plan_part(1), RUN.cancel, f"{RUN.result(1)}.x"]
)
def test_other_keys_lead_to_no_shard(key: str) -> None:
    assert layout.parse_shard_key(key) is None
