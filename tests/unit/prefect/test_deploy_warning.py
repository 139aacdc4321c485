"""`evalcore deploy` warns of packages with which Prefect's server makes no nights."""

from __future__ import annotations

import pytest

from evalcore.prefect import deploy


@pytest.mark.parametrize(
    ("prefect", "sqlalchemy", "is_told"),
    [("3.8.8", "2.1.9", True), ("3.8.0", "2.0.58", False), ("3.9.0", "2.1.9", False)],
)
def test_a_server_that_makes_no_scheduled_flow_runs_is_told(
    monkeypatch: pytest.MonkeyPatch, prefect: str, sqlalchemy: str, *, is_told: bool
) -> None:
    monkeypatch.setattr(deploy, "version", {"prefect": prefect, "sqlalchemy": sqlalchemy}.get)
    assert ("install 'prefect>=3.9' or 'sqlalchemy<2.1'" in deploy.unscheduled()) == is_told
