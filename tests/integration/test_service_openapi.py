"""The service answers as its OpenAPI document says: schemathesis over a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service import service, token_of

pytestmark = [
    pytest.mark.extended,
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("service"),
]
# 400 is for what the schema cannot say: a cursor of another list, `before` with `after`. It cannot
# say either what a workflow's definition means, whose mistakes are 422.
# All phases: EVALCORE_SCHEMATHESIS=examples,coverage,fuzzing,stateful.
PHASES = os.environ.get("EVALCORE_SCHEMATHESIS", "examples,fuzzing")
CONFIGURATION = """
[generation]
allow-x00 = false

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "401", "403", "404", "409"]

[[operations]]
include-operation-id = ["workflows_register", "workflows_update_draft"]
checks.positive_data_acceptance.enabled = false
"""


def test_no_answer_is_undocumented(tmp_path: Path) -> None:
    """A few cases for each operation, with all checks."""
    token = token_of(tmp_path)
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    schemathesis = str(Path(sys.executable).with_name("schemathesis"))
    with service(tmp_path, "--rate", "0", token=token) as served:
        command = [schemathesis, "run", f"{served.url}/openapi.json"]
        command += ["-H", f"Authorization: Bearer {token}", "--phases", PHASES]
        command += ["--max-examples", "4", "--seed", "14", "--no-color"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr
