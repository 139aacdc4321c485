"""The line that `evalcore dev` prints for a flow run that has ended."""

from __future__ import annotations

import pytest

from evalcore.prefect.flow_run_ends import ending


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ({"name": "Completed", "message": "score 1.0"}, "Finished in state Completed: score 1.0"),
        ({"name": "Cancelled", "message": None}, "Finished in state Cancelled"),
        ({"name": "Crashed", "message": "code -9"}, "Finished in state Crashed: code -9"),
    ],
)
def test_a_flow_run_is_told_by_its_last_state(state: dict[str, str], line: str) -> None:
    assert ending({"name": "own", "state": state}) == f"own - {line}"
