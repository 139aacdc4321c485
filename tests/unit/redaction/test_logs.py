"""Log records of other packages hold no secret."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from evalcore.redaction.redactor import PROCESS, REDACTED, redact_log_records

SECRET = "k3y-of-the-log-4711"


@pytest.fixture
def _own_factory() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


@pytest.mark.usefixtures("_own_factory")
def test_records_and_their_exceptions_are_covered(caplog: pytest.LogCaptureFixture) -> None:
    PROCESS.learn([SECRET])
    redact_log_records()
    redact_log_records()
    try:
        raise ValueError(f"no {SECRET}")
    except ValueError:
        logging.getLogger("somebody").exception("asked with %s, %d times", SECRET, 2)
    assert SECRET not in caplog.text
    assert f"asked with {REDACTED}, 2 times" in caplog.text
    assert f"no {REDACTED}" in caplog.text
