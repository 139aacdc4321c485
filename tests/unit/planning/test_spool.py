"""The spool of a suite's cases where the temporary folder has no room for it."""

from __future__ import annotations

import errno
from io import BytesIO

import pytest

from evalcore.errors import StoreError
from evalcore.model.suite import Case
from evalcore.planning import spool
from evalcore.planning.spool import CaseSpool


class FullFile(BytesIO):
    """A file on a disk that is full when it is flushed."""

    def flush(self) -> None:
        """Fail, as a buffered file does at last."""
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        """Fail once more."""
        self.flush()


def filled(cases: CaseSpool, count: int = 3) -> CaseSpool:
    """Return the spool with so many cases more."""
    for number in range(count):
        cases.append(Case(f"c{number}"))
    return cases


def test_a_full_temporary_folder_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "PART_CASES", 2)
    monkeypatch.setattr(spool, "SpooledTemporaryFile", lambda **_: FullFile())
    with pytest.raises(StoreError, match=r"No space left on device \(TMPDIR chooses another"):
        filled(CaseSpool())
