"""A local folder and S3 as stores: the same keys, the same reports."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest

from tests.support.servers import BUCKET, S3Server
from tests.support.shell import Ended, evalcore

pytestmark = pytest.mark.s3

EXAMPLES = ("support-answers", "extraction", "research-workflow")


def stable_texts(ended: Ended) -> list[str]:
    """Return the reports as text, byte for byte, without `run` and `summary`."""
    reports = ended.lines
    for report in reports:
        del report["run"], report["summary"]
    return [json.dumps(report, ensure_ascii=False) for report in reports]


def test_reports_from_s3_are_those_from_a_folder(s3: S3Server, tmp_path: Path) -> None:
    suites = [f"examples/{name}/suite.eval.yaml" for name in EXAMPLES]
    store = f"s3://{BUCKET}/{tmp_path.name}"
    local = evalcore("run", "--json", *suites, store=tmp_path)
    remote = evalcore("run", "--json", *suites, store=store)
    assert stable_texts(remote) == stable_texts(local)
    assert remote.code == local.code

    # Both stores hold the same keys.
    local_id, remote_id = (ended.lines[0]["run"]["id"] for ended in (local, remote))
    folder = tmp_path / "runs" / EXAMPLES[0] / local_id
    local_keys = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    start = f"{tmp_path.name}/runs/{EXAMPLES[0]}/{remote_id}/"
    listed = boto3.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=start)["Contents"]
    assert {entry["Key"].removeprefix(start) for entry in listed} == local_keys


def test_a_run_in_s3_is_listed_shown_and_not_executed_again(s3: S3Server, tmp_path: Path) -> None:
    store = f"s3://{BUCKET}/{tmp_path.name}"
    ran = evalcore("run", "--json", "examples/research-workflow/suite.eval.yaml", store=store)
    run_id = ran.report["run"]["id"]
    (listed,) = json.loads(evalcore("runs", "list", "--json", store=store).out)
    assert (listed["id"], listed["state"]) == (run_id, "completed")
    assert evalcore("report", run_id, "--json", store=store).out == ran.out
    again = evalcore("run", "--resume", run_id, "--json", store=store)
    assert (again.out, again.code) == (ran.out, ran.code)


def test_a_bucket_that_does_not_exist_is_one_message(s3: S3Server) -> None:
    suite = "examples/support-answers/suite.eval.yaml"
    ended = evalcore("run", suite, store="s3://no-such-bucket-here/x")
    assert (ended.code, ended.out) == (4, "")
    assert "no-such-bucket-here" in ended.err
    assert "Traceback" not in ended.err
