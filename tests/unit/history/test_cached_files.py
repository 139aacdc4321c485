"""The files of a remote history that are kept on disk."""

from __future__ import annotations

import os
from pathlib import Path

from evalcore.history.files import prune_cache

NOW_S = 1_800_000_000.0


def test_the_cache_forgets_what_was_not_used_for_a_month(tmp_path: Path) -> None:
    days = {"a/old": 31, "b/recent": 29, "a/in-use": 0}
    for name, day in days.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 10)
        os.utime(path, (NOW_S, NOW_S - day * 86_400))
    prune_cache(tmp_path, now_s=NOW_S)
    assert [name for name in days if (tmp_path / name).exists()] == ["b/recent", "a/in-use"]
