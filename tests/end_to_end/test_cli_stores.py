"""A local folder and S3 as stores: the same keys, the same reports."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest

from tests.support.servers import BUCKET, S3Server
from tests.support.shell import Ended, evalcore

pytestmark = pytest.mark.s3

EXAMPLES = ("support-answers", "extraction", "research-workflow", "tickets-csv")


def stable_text(ended: Ended) -> str:
    """Return the report as text, byte for byte, without `run` and `summary`."""
    report = ended.report
    del report["run"], report["summary"]
    return json.dumps(report, ensure_ascii=False)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_report_from_s3_is_that_from_a_folder(name: str, s3: S3Server, tmp_path: Path) -> None:
    suite = f"examples/{name}/suite.eval.yaml"
    local = evalcore("run", "--json", suite, store=tmp_path)
    remote = evalcore("run", "--json", suite, store=f"s3://{BUCKET}/{tmp_path.name}")
    assert stable_text(remote) == stable_text(local)
    assert remote.code == local.code


def test_both_stores_hold_the_same_keys(s3: S3Server, tmp_path: Path) -> None:
    prefix = tmp_path.name
    suite = "examples/support-answers/suite.eval.yaml"
    local_id = evalcore("run", "--json", suite, store=tmp_path).report["run"]["id"]
    remote = evalcore("run", "--json", suite, store=f"s3://{BUCKET}/{prefix}")
    remote_id = remote.report["run"]["id"]
    folder = tmp_path / "runs" / "support-answers" / local_id
    local_keys = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    start = f"{prefix}/runs/support-answers/{remote_id}/"
    listed = boto3.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=start)["Contents"]
    assert {entry["Key"].removeprefix(start) for entry in listed} == local_keys


def test_a_run_in_s3_is_listed_and_shown(s3: S3Server, tmp_path: Path) -> None:
    store = f"s3://{BUCKET}/{tmp_path.name}"
    ran = evalcore("run", "--json", "examples/research-workflow/suite.eval.yaml", store=store)
    run_id = ran.report["run"]["id"]
    (listed,) = json.loads(evalcore("runs", "list", "--json", store=store).out)
    assert (listed["id"], listed["state"]) == (run_id, "completed")
    assert evalcore("report", run_id, "--json", store=store).out == ran.out


def test_a_completed_run_in_s3_is_not_executed_again(s3: S3Server, tmp_path: Path) -> None:
    store = f"s3://{BUCKET}/{tmp_path.name}"
    ran = evalcore("run", "--json", "examples/extraction/suite.eval.yaml", store=store)
    again = evalcore("run", "--resume", ran.report["run"]["id"], "--json", store=store)
    assert (again.out, again.code) == (ran.out, ran.code)


def test_a_bucket_that_does_not_exist_is_one_message(s3: S3Server) -> None:
    suite = "examples/support-answers/suite.eval.yaml"
    ended = evalcore("run", suite, store="s3://no-such-bucket-here/x")
    assert (ended.code, ended.out) == (4, "")
    assert "no-such-bucket-here" in ended.err
    assert "Traceback" not in ended.err
