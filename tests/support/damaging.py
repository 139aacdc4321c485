"""Ways in which what stands in a store stops being the run: each changes one run's folder."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evalcore.sql.connection import connect

CASES = 42
"""Of the run that is damaged: in parts of 20, with two iterations in four shards of 21 items."""
FIRST_ITEM = 21
"""Of shard 1."""

Damage = Callable[[Path], None]
Change = Callable[[bytes], bytes]


def part(folder: Path, shard: int = 1) -> Path:
    return folder / "results" / f"{shard:05d}.parquet"


def cases(folder: Path, number: int = 0) -> Path:
    return folder / "plan" / f"cases-{number:05d}.jsonl.zst"


def rewrite(path: Path, data: bytes) -> None:
    """Replace a file that may be linked elsewhere."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def replaced(find: Callable[[Path], Path], change: Change) -> Damage:
    return lambda folder: rewrite(find(folder), change(find(folder).read_bytes()))


def queried(select: str, shard: int = 1) -> Damage:
    """Replace a shard's part by what a query over `rows` gives; `FIRST` is its first item."""

    def damage(folder: Path) -> None:
        new, path = folder / "new.parquet", part(folder, shard)
        query = select.replace("FIRST", str(FIRST_ITEM * shard))
        rows = f"WITH rows AS (FROM read_parquet('{path}'))"
        connect().execute(f"COPY ({rows} {query}) TO '{new}' (FORMAT parquet)")
        new.replace(path)

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


def flipped(where: float) -> Change:
    """Flip a byte: 0 is the first one, 1 the last."""

    def change(data: bytes) -> bytes:
        at = round(where * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]

    return change


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


OF_BYTES: Mapping[str, Change] = {
    "torn": half,
    "the last byte cut": lambda data: data[:-1],
    "the first byte cut": lambda data: data[1:],
    "empty": lambda _: b"",
    "garbage": lambda data: b"x" * len(data),
    "zeros": lambda data: bytes(len(data)),
    "appended to": lambda data: data + b"\0",
    "twice": lambda data: data * 2,
    "compressed": gzip.compress,
    "the first byte flipped": flipped(0),
    "an early byte flipped": flipped(0.2),
    "a byte flipped": flipped(0.5),
    "a late byte flipped": flipped(0.8),
    "the last byte flipped": flipped(1),
    "a list": lambda _: b"[]",
    "only a Parquet file's ends": lambda _: b"PAR1PAR1",
}
"""What may happen to any object."""

OF_ROWS: Mapping[str, str] = {
    "rows missing": "FROM rows LIMIT 19",
    "no rows": "FROM rows LIMIT 0",
    "a row doubled": "FROM rows UNION ALL (FROM rows LIMIT 1)",
    "a row in the place of another": (
        "SELECT * REPLACE (if(item = FIRST + 9, FIRST + 10, item) AS item) FROM rows"
    ),
    "items of another shard": "SELECT * REPLACE (item + 1000 AS item) FROM rows",
    "an item null": "SELECT * REPLACE (nullif(item, FIRST + 9) AS item) FROM rows",
    "a case null": ("SELECT * REPLACE (if(item = FIRST + 9, NULL, case_id) AS case_id) FROM rows"),
    "a variant null": (
        "SELECT * REPLACE (if(item = FIRST + 9, NULL, variant) AS variant) FROM rows"
    ),
    "a state null": "SELECT * REPLACE (if(item = FIRST + 9, NULL, status) AS status) FROM rows",
    "an unknown state": (
        "SELECT * REPLACE (if(item = FIRST + 9, 'lost', status) AS status) FROM rows"
    ),
    "a column missing": "SELECT * EXCLUDE (score) FROM rows",
    "no items": "SELECT * EXCLUDE (item) FROM rows",
    "no assertions": "SELECT * EXCLUDE (assertions) FROM rows",
    "a column renamed": "SELECT * RENAME (status AS state) FROM rows",
    "another table": "SELECT 1 AS one",
}
"""What is noticed by the rows alone, as in runs that have not ended."""

OF_VALUES: Mapping[str, str] = {
    "an outcome edited": (
        "SELECT * REPLACE (if(item = FIRST + 9, 'failed', outcome) AS outcome) FROM rows"
    ),
    "a score edited": "SELECT * REPLACE (0.5 AS score) FROM rows",
    "a case edited": "SELECT * REPLACE ('other' AS case_id) FROM rows",
    "items as texts": "SELECT * REPLACE (item::VARCHAR AS item) FROM rows",
    "scores as texts": "SELECT * REPLACE (score::VARCHAR AS score) FROM rows",
    "a column too many": "SELECT *, 1 AS more FROM rows",
    "rows in another order": "FROM rows ORDER BY item DESC",
}
"""What only the digests show."""


def of_part(name: str, shard: int = 1) -> Damage:
    """Return what damages a shard's part so."""
    if name in OF_BYTES:
        return replaced(lambda folder: part(folder, shard), OF_BYTES[name])
    if name in OF_FILES:
        return lambda folder: OF_FILES[name](folder, shard)
    return queried({**OF_ROWS, **OF_VALUES}[name], shard)


def _made_a_folder(folder: Path, shard: int) -> None:
    part(folder, shard).unlink()
    part(folder, shard).mkdir()


def _linked_nowhere(folder: Path, shard: int) -> None:
    part(folder, shard).unlink()
    part(folder, shard).symlink_to(folder / "nothing")


OF_FILES: Mapping[str, Callable[[Path, int], None]] = {
    "deleted": lambda folder, shard: part(folder, shard).unlink(),
    "swapped with another": lambda folder, shard: swapped(
        lambda _: part(folder, shard), lambda _: part(folder, 2 if shard == 1 else 1)
    )(folder),
    "a folder": _made_a_folder,
    "a link to nothing": _linked_nowhere,
}
PARTS = (*OF_BYTES, *OF_ROWS, *OF_VALUES, *OF_FILES)

_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "id": {"another run's": "20260518T100000Z-0a1b2c", "no id": "x"},
    "suite": {"another suite's": "other", "empty": ""},
    "format": {"another format": "workflow-harness"},
    "state": {"unknown": "finished", "a list": ["completed"]},
    "mode": {"another mode": "replay"},
    "created_at": {"yesterday": "yesterday", "another time": "2026-05-18T10:00:00.000000Z"},
    "source": {"another suite": {"path": "other.yaml", "sha256": "0" * 64}},
    "plan": {"empty": {}},
    "settings": {"empty": {}},
    "engine": {"another version": {"evalcore": "9"}},
    "ended_at": {"no zone": "2026-05-18T10:00:00"},
    "counts": {"empty": {}, "of fewer": {"planned": 83, "completed": 83, "passed": 83}},
    "decision": {"unknown": "maybe"},
    "parts": {"empty": [], "texts": ["x"]},
    "schema": {"text": "1"},
}
_IN_TEXT = ("a byte flipped", "an early byte flipped", "a late byte flipped")
_LINE_END = "the last byte cut"
_OPTIONAL = ("execution", "schema")
_NUMBERS = ("items", "cases", "variants", "iterations", "shards", "shard_size", "parts")


def _without(key: str) -> Damage:
    return manifest(lambda raw: raw.pop(key) and None)


def _with(key: str, value: Any) -> Damage:
    return manifest(lambda raw: raw.update({key: value}))


def _plan_without(key: str) -> Damage:
    return manifest(lambda raw: raw["plan"].pop(key) and None)


def _fewer(key: str) -> Damage:
    return manifest(lambda raw: raw["plan"].update({key: raw["plan"][key] - 1}))


KEYS = (*_OTHERS, "started_at", "execution")
OF_MANIFESTS: Mapping[str, Damage] = {
    **{
        f"bytes: {name}": replaced(lambda folder: folder / "manifest.json", change)
        for name, change in OF_BYTES.items()
        if name not in {*_IN_TEXT, _LINE_END}
    },
    "not text": replaced(lambda folder: folder / "manifest.json", lambda _: b"\xff\xfe\x00"),
    "a number": manifest(lambda _: 7),
    "nothing in it": manifest(lambda _: {}),
    "an unknown key": _with("more", 1),
    **{f"no {key}": _without(key) for key in KEYS if key not in _OPTIONAL},
    **{f"{key} null": _with(key, None) for key in KEYS},
    **{f"{key} a number": _with(key, 7) for key in KEYS if key != "schema"},
    **{
        f"{key}: {name}": _with(key, value)
        for key, others in _OTHERS.items()
        for name, value in others.items()
    },
    **{f"no {name} planned": _plan_without(name) for name in _NUMBERS},
    **{f"fewer {name}": _fewer(name) for name in _NUMBERS if name != "variants"},
    "items as a text": planned(items="many"),
    "items below zero": planned(items=-84),
    "items beyond every number": planned(items=10**30),
    "no shard size": planned(shard_size=0),
    "a run that is smaller in all": smaller,
    "fewer cases, in all": fewer_cases,
    "counts edited": manifest(lambda raw: raw["counts"].update(passed=1, failed=83)),
    "a count missing": manifest(lambda raw: raw["counts"].pop("failed") and None),
    "fewer parts": manifest(lambda raw: raw.update(parts=raw["parts"][:2])),
    "parts in another order": manifest(lambda raw: raw.update(parts=raw["parts"][::-1])),
    "a digest edited": manifest(lambda raw: raw["parts"][0].update(sha256="0" * 64)),
    "a setting edited": manifest(lambda raw: raw["settings"].update(reuse="history")),
}


def _suite(folder: Path) -> Path:
    return folder / "plan" / "suite.json"


def _signature(folder: Path) -> Path:
    return folder / "plan" / "signature.json"


def _last_cases(folder: Path) -> Path:
    return cases(folder, 2)


def _deleted(find: Callable[[Path], Path]) -> Damage:
    return lambda folder: find(folder).unlink()


_PLANNED: Mapping[str, Callable[[Path], Path]] = {
    "the suite": _suite,
    "the first cases": cases,
    "the last cases": _last_cases,
    "the signature": _signature,
}
OF_PLANS: Mapping[str, Damage] = {
    **{
        f"{place}: {name}": replaced(find, change)
        for place, find in _PLANNED.items()
        for name, change in OF_BYTES.items()
        if (place, name) != ("the signature", _LINE_END)
    },
    **{
        f"{place}: deleted": _deleted(find)
        for place, find in _PLANNED.items()
        if place != "the signature"  # such a plan is not signed
    },
    "a threshold of the suite edited": replaced(
        _suite, lambda data: data.replace(b'"threshold"', b'"thresholds"', 1)
    ),
    "cases in the wrong order": swapped(cases, lambda folder: cases(folder, 1)),
    "cases of another part": swapped(cases, _last_cases),
    "more cases": lambda folder: rewrite(cases(folder, 3), cases(folder).read_bytes()),
}
