"""A process may open as many files as the system lets it."""

from __future__ import annotations

import resource

import pytest

from evalcore.execution.limits import allow_open_files

NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 4096), 4096),
        ((1024, NONE), 65_536),
        ((1024, 1 << 20), 65_536),
        ((1024, 1024), None),
        ((NONE, NONE), None),
        ((1 << 17, 1 << 20), None),
    ],
)
def test_the_soft_limit_is_raised(
    limits: tuple[int, int], raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: given.append(both))
    allow_open_files()
    assert given == ([] if raised is None else [(raised, limits[1])])


def test_a_system_that_refuses_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, __: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    allow_open_files()
