"""A run that waits for nothing that could come ends, and can be resumed: in real processes."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun
from tests.end_to_end.shell import evalcore
from tests.end_to_end.shell import start as start_evalcore
from tests.reports import stable_report
from tests.worker_runs import (
    LEASE_S,
    Worker,
    calls,
    plan_shared,
    undisturbed_report,
    wait_for,
    write_suite,
)

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]
