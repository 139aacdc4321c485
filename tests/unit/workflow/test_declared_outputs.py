"""An output that is not what its block declares: told without the whole value or a secret."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.redaction.redactor import PROCESS
from evalcore.workflow.events import BlockError
from evalcore.workflow.values import check_outputs

SECRET = "a-secret-of-some-length"
NUMBER = {"type": "object", "properties": {"total": {"type": "number"}}}


def reason(total: Any) -> str:
    """Return why an output with this total is refused."""
    with pytest.raises(BlockError) as caught:
        check_outputs(NUMBER, {"total": total})
    return str(caught.value)


def test_a_short_value_is_shown() -> None:
    assert reason("x") == "the output at 'total': 'x' is not of type 'number'"


def test_a_long_value_is_shortened_and_the_reason_stays() -> None:
    message = reason("x" * 10_000)
    assert message.endswith("… is not of type 'number'")
    assert len(message) < 200


@pytest.mark.parametrize("before", [50, 60, 70, 290])
def test_a_secret_is_covered_before_the_value_is_cut(before: int) -> None:
    PROCESS.learn([SECRET])
    assert SECRET[:6] not in reason("x" * before + SECRET)
