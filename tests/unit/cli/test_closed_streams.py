"""Standard streams that the caller has closed."""

from __future__ import annotations

import sys

import pytest

from evalcore.cli import main


def test_closed_streams_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
        monkeypatch.setattr(sys, f"__{name}__", None)

    main._replace_closed_streams()
    streams = [sys.stdin, sys.stdout, sys.stderr]
    try:
        assert sys.stdin.read() == ""
        print("a report", flush=True)
        print("a message", file=sys.stderr, flush=True)
        assert sys.__stdout__ is sys.stdout
    finally:
        for stream in streams:
            stream.close()
