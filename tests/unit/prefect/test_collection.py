"""The block `EvalcoreStore`: light to import, and gives what a store's address needs beside it."""

from __future__ import annotations

import subprocess
import sys


def test_prefect_finds_the_collection_and_imports_nothing_heavy_with_it() -> None:
    code = (
        "import sys\n"
        "from importlib.metadata import entry_points\n"
        "(found,) = (each for each in entry_points(group='prefect.collections')"
        " if each.name == 'evalcore')\n"
        "import prefect.blocks.core\n"
        "before = set(sys.modules)\n"
        "found.load()\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = ended.stdout.split()
    assert "evalcore.prefect.collection" in added
    assert [name for name in added if name.partition(".")[0] in {"duckdb", "boto3", "altair"}] == []
    assert [name for name in added if name.startswith("evalcore.")] == [
        "evalcore.prefect",
        "evalcore.prefect.collection",
        "evalcore.version",
    ]
