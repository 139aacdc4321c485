"""Suites whose code closes the standard streams: the command still says what it has to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell import evalcore

SUITE = """\
import sys
from evalcore import define_suite
def answer(case_input, variant):
    sys.STREAM.close()
    return case_input
sys.STREAM.close()
suite = define_suite("closing", FLOW, [{"id": "a", "input": "x"}], ["v"])
"""


# In a worker process, and in the command's.
@pytest.mark.parametrize(
    ("stream", "flow"), [("stdout", "answer"), ("stderr", "lambda x, variant: answer(x, variant)")]
)
def test_a_suite_that_closes_a_stream_has_its_report_and_exit_code(
    stream: str, flow: str, tmp_path: Path
) -> None:
    text = SUITE.replace("STREAM", stream).replace("FLOW", flow)
    (tmp_path / "closing.py").write_text(text)
    ended = evalcore(
        "run", "closing.py", "--json", store=tmp_path / "store", cwd=tmp_path, forked=False
    )
    assert ended.code == 3, ended.err
    assert ended.report["decision"] == "inconclusive"
    assert "asserts nothing" in ended.err
