"""Test files whose tests are objects of a bucket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalcore import SuiteError, define_suite, run_suite, variant
from evalcore.storage.address import open_store
from tests.support.servers import BUCKET, Fault, S3Server, faulty_proxy
from tests.support.shell import evalcore

pytestmark = [pytest.mark.s3, pytest.mark.multiprocess]

ROWS = 3_000


def put(key: str, data: bytes) -> None:
    open_store(f"s3://{BUCKET}").put(key, data)


def parquet(folder: Path, rows: int = ROWS) -> bytes:
    import duckdb

    path = folder / "cases.parquet"
    duckdb.execute(
        f"COPY (SELECT 'case-' || i AS id, 'How much is ' || i || '?' AS input, 'It is ' || i "
        f"AS output, 'It is ' || i AS contains FROM range({rows}) t(i)) TO '{path}'"
    )
    return path.read_bytes()


def suite(folder: Path, tests: str) -> Path:
    path = folder / "remote.eval.yaml"
    path.write_text(f"name: remote\ntests: {tests}\n")
    return path


def test_a_parquet_object_below_the_store_is_the_suites_tests(tmp_path: Path, s3: S3Server) -> None:
    store = f"s3://{BUCKET}/{tmp_path.name}"
    put(f"{tmp_path.name}/data/cases.parquet", parquet(tmp_path))
    path = suite(tmp_path, f"{store}/data/cases.parquet")
    ended = evalcore("run", path, "--json", "--store", store)
    assert ended.code == 0, ended.err
    assert ended.report["counts"]["passed"] == ROWS


def test_the_cases_of_a_suite_file_are_read_alike(tmp_path: Path, s3: S3Server) -> None:
    store = f"s3://{BUCKET}/{tmp_path.name}"
    put(f"{tmp_path.name}/data/cases.parquet", parquet(tmp_path))
    path = tmp_path / "suite.yaml"
    cases = f"cases: {store}/data/cases.parquet"
    path.write_text(f"name: remote\nflow: nothing:here\n{cases}\nvariants: [{{id: a}}]\n")
    ended = evalcore("run", path, "--json", "--store", store)
    assert ended.code == 0, ended.err
    assert ended.report["counts"]["passed"] == ROWS
    elsewhere = evalcore("run", path, store=tmp_path / "store")
    assert elsewhere.code == 2
    assert f"EVALCORE_ALLOW_DATASETS=s3://{BUCKET}/{tmp_path.name}/data" in elsewhere.err


def answer(question: str) -> str:
    return question


def test_a_suite_in_python_reads_alike(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(f"{tmp_path.name}/data/cases.parquet", parquet(tmp_path))
    address = f"s3://{BUCKET}/{tmp_path.name}/data"
    cases = f"{address}/cases.parquet"
    remote = define_suite(name="remote", flow=answer, variants=[variant("a")], cases=cases)

    with pytest.raises(SuiteError, match="EVALCORE_ALLOW_DATASETS"):
        run_suite(remote, store=tmp_path / "store")
    assert run_suite(remote, store=address).summary.passed_cases == ROWS
    monkeypatch.setenv("EVALCORE_ALLOW_DATASETS", address)
    report = run_suite(remote, store=tmp_path / "store")
    assert report.passed
    assert len(report.case_results) == ROWS


def test_lists_and_patterns_name_several_objects(tmp_path: Path, s3: S3Server) -> None:
    root = f"s3://{BUCKET}/{tmp_path.name}"
    for name in ("a-1", "a-2", "b-1"):
        line = {
            "id": name,
            "input": "?",
            "output": "x",
            "assertions": [{"type": "equals", "value": "x"}],
        }
        put(f"{tmp_path.name}/data/{name}.jsonl", json.dumps(line).encode())
    path = suite(tmp_path, f"['{root}/data/a-*.jsonl', '{root}/data/b-1.jsonl']")
    ended = evalcore("run", path, "--json", store=root)
    assert [case["id"] for case in ended.report["cases"]] == ["a-1", "a-2", "b-1"]


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        (None, 2),
        ("s3://{bucket}/{name}", 0),
        ("s3://{bucket}/{name}/data/", 0),
        ("s3://{bucket}", 0),
        ("s3://{bucket}/{name}/dat", 2),
        ("s3://another/{name}", 2),
    ],
    ids=["nothing", "the folder", "with a slash", "the bucket", "half a name", "another bucket"],
)
def test_an_address_outside_of_the_store_has_to_be_allowed(
    tmp_path: Path, s3: S3Server, allowed: str | None, code: int
) -> None:
    name = tmp_path.name
    put(f"{name}/data/cases.parquet", parquet(tmp_path, 3))
    path = suite(tmp_path, f"s3://{BUCKET}/{name}/data/cases.parquet")
    env = {}
    if allowed is not None:
        env["EVALCORE_ALLOW_DATASETS"] = allowed.format(bucket=BUCKET, name=name)
    ended = evalcore("run", path, store=tmp_path / "store", env=env)
    assert ended.code == code, ended.err
    if code:
        assert "remote.eval.yaml:2: tests:" in ended.err
        assert f"EVALCORE_ALLOW_DATASETS=s3://{BUCKET}/{name}/data" in ended.err


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("s3://{bucket}/{name}/none.parquet", "no such object"),
        ("s3://{bucket}/{name}/*.parquet", "no object matches"),
        ("s3://{bucket}/{name}/../x.parquet", "'..'"),
        ("s3://{bucket}/{name}/cases.txt", ".parquet"),
        ("s3://", "expected an address"),
    ],
    ids=["missing", "pattern", "upward", "suffix", "empty"],
)
def test_a_wrong_address_is_a_mistake_of_the_suite(
    tmp_path: Path, s3: S3Server, tests: str, said: str
) -> None:
    path = suite(tmp_path, tests.format(bucket=BUCKET, name=tmp_path.name))
    ended = evalcore("run", path, store=f"s3://{BUCKET}/{tmp_path.name}")
    assert ended.code == 2
    assert "remote.eval.yaml:2" in ended.err
    assert said in ended.err


def test_a_mistake_in_an_object_names_the_object_and_its_row(tmp_path: Path, s3: S3Server) -> None:
    put(f"{tmp_path.name}/bad.jsonl", b'{"id": "a", "input": "?", "wrong": 1}\n')
    address = f"s3://{BUCKET}/{tmp_path.name}/bad.jsonl"
    ended = evalcore("validate", suite(tmp_path, address), store=f"s3://{BUCKET}")
    assert ended.code == 2
    assert f"{address}:1" in ended.err


@pytest.mark.parametrize(
    "faults",
    [
        [Fault(cuts_body=True, method="GET")] * 2,
        [Fault(status=503, method="GET")] * 2,
        [Fault(status=500, loses_answer=True, method="GET")],
    ],
    ids=["cut bodies", "unavailable", "lost answer"],
)
def test_a_faulty_connection_gives_the_same_tests(
    tmp_path: Path, s3: S3Server, faults: list[Fault]
) -> None:
    put(f"{tmp_path.name}/cases.parquet", parquet(tmp_path))
    path = suite(tmp_path, f"s3://{BUCKET}/{tmp_path.name}/cases.parquet")
    with faulty_proxy(s3.url) as proxy:
        proxy.inject(*faults)
        env = {"EVALCORE_ALLOW_DATASETS": f"s3://{BUCKET}", "AWS_ENDPOINT_URL": proxy.url}
        ended = evalcore("run", path, "--json", store=tmp_path / "store", env=env)
        assert proxy.unused == ()
    assert ended.report["counts"]["passed"] == ROWS
