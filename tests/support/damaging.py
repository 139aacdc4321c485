"""Ways in which what stands in a store stops being the run: each changes one run's folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evalcore.sql.connection import connect

CASES = 42
"""Of the run that is damaged: in parts of 20, with two iterations in four shards of 21 items."""

Damage = Callable[[Path], None]


def part(folder: Path, shard: int = 1) -> Path:
    return folder / "results" / f"{shard:05d}.parquet"


def cases(folder: Path, number: int = 0) -> Path:
    return folder / "plan" / f"cases-{number:05d}.jsonl.zst"


def rewrite(path: Path, data: bytes) -> None:
    """Replace a file that may be linked elsewhere."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def replaced(find: Callable[[Path], Path], change: Callable[[bytes], bytes]) -> Damage:
    return lambda folder: rewrite(find(folder), change(find(folder).read_bytes()))


def queried(select: str) -> Damage:
    """Replace shard 1's part by what a query over `rows` gives."""

    def damage(folder: Path) -> None:
        new = folder / "new.parquet"
        rows = f"WITH rows AS (FROM read_parquet('{part(folder)}'))"
        connect().execute(f"COPY ({rows} {select}) TO '{new}' (FORMAT parquet)")
        new.replace(part(folder))

    return damage


def swapped(first: Callable[[Path], Path], second: Callable[[Path], Path]) -> Damage:
    def damage(folder: Path) -> None:
        one, other = first(folder).read_bytes(), second(folder).read_bytes()
        rewrite(first(folder), other)
        rewrite(second(folder), one)

    return damage


def manifest(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / "manifest.json"
        raw = json.loads(path.read_text())
        changed = change(raw)
        rewrite(path, json.dumps(raw if changed is None else changed).encode())

    return damage


def planned(**numbers: Any) -> Damage:
    return manifest(lambda raw: raw["plan"].update(numbers))


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


def smaller(folder: Path) -> None:
    """Make the run a smaller one whose manifest agrees with itself and with its results."""

    def shrink(raw: dict[str, Any]) -> None:
        raw["plan"].update(items=63, iterations=1, cases=63, shards=3, parts=4)
        raw["counts"].update(planned=63, completed=63, passed=63)
        raw["parts"] = raw["parts"][:3]

    manifest(shrink)(folder)
    part(folder, 3).unlink()


def fewer_cases(folder: Path) -> None:
    """Drop the last part of the cases, and all that it leads to, from the manifest."""

    def shrink(raw: dict[str, Any]) -> None:
        raw["plan"].update(items=80, cases=40, parts=2)
        raw["counts"].update(planned=80, completed=80, passed=80)

    manifest(shrink)(folder)


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


OF_SHARDS: Mapping[str, Damage] = {
    "torn": replaced(part, half),
    "empty": replaced(part, lambda _: b""),
    "garbage": replaced(part, lambda data: b"x" * len(data)),
    "rows missing": queried("FROM rows LIMIT 19"),
    "a row doubled": queried("FROM rows UNION ALL (FROM rows LIMIT 1)"),
    "a row in the place of another": queried(
        "SELECT * REPLACE (if(item = 30, 31, item) AS item) FROM rows"
    ),
    "an item null": queried("SELECT * REPLACE (nullif(item, 30) AS item) FROM rows"),
    "a state null": queried("SELECT * REPLACE (if(item = 30, NULL, status) AS status) FROM rows"),
    "a column missing": queried("SELECT * EXCLUDE (score) FROM rows"),
    "swapped with another": swapped(part, lambda folder: part(folder, 2)),
    "deleted": lambda folder: part(folder).unlink(),
}
"""What is noticed by the rows alone, as in runs of earlier versions."""

OF_BYTES: Mapping[str, Damage] = {
    "a byte flipped": replaced(part, flip),
    "an outcome edited": queried(
        "SELECT * REPLACE (if(item = 30, 'failed', outcome) AS outcome) FROM rows"
    ),
}
"""What only the digests show."""

OF_MANIFESTS: Mapping[str, Damage] = {
    "no JSON": replaced(lambda folder: folder / "manifest.json", half),
    "empty": replaced(lambda folder: folder / "manifest.json", lambda _: b""),
    "not text": replaced(lambda folder: folder / "manifest.json", lambda _: b"\xff\xfe\x00"),
    "a list": manifest(lambda _: [1, 2]),
    "a number": manifest(lambda _: 7),
    "nothing in it": manifest(lambda _: {}),
    "an unknown state": manifest(lambda raw: raw.update(state="finished")),
    "a state that is none": manifest(lambda raw: raw.update(state=["completed"])),
    "a plan that is none": manifest(lambda raw: raw.update(plan=5)),
    "settings that are none": manifest(lambda raw: raw.update(settings=None)),
    "items as a text": planned(items="many"),
    "items below zero": planned(items=-84),
    "items beyond every number": planned(items=10**30),
    "no shard size": planned(shard_size=0),
    "fewer shards": planned(shards=3),
    "fewer items": planned(items=83),
    "fewer iterations": planned(iterations=1),
    "a run that is smaller in all": smaller,
    "fewer cases": fewer_cases,
    "another run's": manifest(lambda raw: raw.update(id="20260518T100000Z-0a1b2c")),
    "another suite's": manifest(lambda raw: raw.update(suite="other")),
    "counts edited": manifest(lambda raw: raw["counts"].update(passed=1, failed=83)),
    "no counts": manifest(lambda raw: raw.update(counts=None)),
    "an unknown decision": manifest(lambda raw: raw.update(decision="maybe")),
    "a time that is none": manifest(lambda raw: raw.update(created_at="yesterday")),
    "parts that are none": manifest(lambda raw: raw.update(parts=["x"])),
    "fewer parts": manifest(lambda raw: raw.update(parts=raw["parts"][:2])),
}

OF_PLANS: Mapping[str, Damage] = {
    "a suite that is cut": replaced(lambda folder: folder / "plan" / "suite.json", half),
    "an empty suite": replaced(lambda folder: folder / "plan" / "suite.json", lambda _: b""),
    "a suite that is a list": replaced(
        lambda folder: folder / "plan" / "suite.json", lambda _: b"[]"
    ),
    "no suite": lambda folder: (folder / "plan" / "suite.json").unlink(),
    "cases torn": replaced(cases, half),
    "cases empty": replaced(cases, lambda _: b""),
    "cases that are garbage": replaced(cases, lambda data: b"x" * len(data)),
    "a byte of the cases flipped": replaced(cases, flip),
    "no cases": lambda folder: cases(folder).unlink(),
    "no last cases": lambda folder: cases(folder, 2).unlink(),
    "cases in the wrong order": swapped(cases, lambda folder: cases(folder, 2)),
}
