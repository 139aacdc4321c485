"""The service answers as its OpenAPI document says: schemathesis over a real process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service import service, token_of

pytestmark = [
    pytest.mark.extended,
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.xdist_group("service"),
]
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,response_headers_conformance,ignored_auth,unsupported_method"
)


def test_no_answer_is_undocumented(tmp_path: Path) -> None:
    """A few cases for each operation; all of them are in benchmarks/RESULTS.md."""
    token = token_of(tmp_path, "one")
    schemathesis = str(Path(sys.executable).with_name("schemathesis"))
    with service(tmp_path, "--rate", "0", token=token) as served:
        command = [schemathesis, "run", f"{served.url}/openapi.json", "--checks", CHECKS]
        command += ["-H", f"Authorization: Bearer {token}", "--phases", "fuzzing"]
        command += ["--max-examples", "4", "--seed", "14", "--no-color"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr
