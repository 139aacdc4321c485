"""Folders for what is written on its way."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from evalcore.errors import StoreError
from evalcore.trust.machine_faults import temporary_folder


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_what_finds_no_room_is_told_with_the_folder_and_a_remedy(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    message = f"cannot write below {tmp_path}: {os.strerror(code)} (TMPDIR chooses another folder)"

    with pytest.raises(StoreError) as caught, temporary_folder():
        raise OSError(code, os.strerror(code))

    assert str(caught.value) == message


@pytest.mark.parametrize(
    "error",
    [
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        OSError(errno.ENOSPC, "No space left on device", "/elsewhere/answer.csv"),
    ],
    ids=["pipe", "connection", "another file"],
)
def test_an_error_of_something_else_stays_what_it_is(error: OSError) -> None:
    with pytest.raises(OSError, match=str(error.strerror)) as caught, temporary_folder():
        raise error

    assert caught.value is error


def test_nothing_is_left_of_it() -> None:
    with temporary_folder("evalcore-test-") as folder:
        (folder / "rows").write_text("x")

    assert not folder.exists()
    assert folder.name.startswith("evalcore-test-")
