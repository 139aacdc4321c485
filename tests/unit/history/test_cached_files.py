"""The files of a remote history that are kept on disk."""

from __future__ import annotations

import os
from pathlib import Path

from evalcore.history.files import prune_cache

NOW_S = 1_800_000_000.0


def test_the_cache_forgets_what_was_not_used_for_the_longest(tmp_path: Path) -> None:
    hours = {"a/oldest": 5.0, "b/older": 4.0, "a/old": 3.0, "b/in-use": 0.5}
    for name, hour in hours.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 10)
        os.utime(path, (NOW_S, NOW_S - hour * 3_600))
    prune_cache(tmp_path, now_s=NOW_S, most_bytes=25)
    assert [name for name in hours if (tmp_path / name).exists()] == ["a/old", "b/in-use"]
    prune_cache(tmp_path, now_s=NOW_S, most_bytes=0)
    assert [name for name in hours if (tmp_path / name).exists()] == ["b/in-use"]
