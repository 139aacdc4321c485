"""Relations as data frames; pandas is in the extra `notebook`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from evalcore.errors import UsageError
from evalcore.sql.connection import connect
from evalcore.sql.tables import data_frame


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    with pytest.raises(
        UsageError, match=r"needs pandas: pip install 'evalcore-pipeline\[notebook\]'"
    ):
        data_frame(connect().sql("SELECT 1 AS n"))


@pytest.mark.skipif(find_spec("pandas") is None, reason="needs the extra notebook")
def test_a_relation_is_a_data_frame() -> None:
    assert data_frame(connect().sql("SELECT 1 AS n"))["n"].tolist() == [1]
