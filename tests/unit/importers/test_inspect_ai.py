"""Logs and datasets of Inspect AI as suites: the same verdicts as Inspect's scorers."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
import zstandard

from evalcore.errors import LoadError
from evalcore.importers.files import read_foreign_file
from evalcore.importers.inspect_ai import CHECKS_MODULE
from tests.support.conversions import FILES, converted, written
from tests.support.shell import evalcore

LOGS = ("basic", "mcq", "numeric", "patterns")
JUDGED = "model_graded_qa"
CHECKS: dict[str, Any] = {}
exec(CHECKS_MODULE.read_text("utf-8"), CHECKS)


@pytest.mark.parametrize("log", LOGS)
def test_every_scorer_says_of_every_answer_what_inspect_said(log: str, tmp_path: Path) -> None:
    suite = yaml.safe_load(written("inspect", f"{log}.json", tmp_path).read_text("utf-8"))
    compared = 0
    for case in suite["cases"]:
        for assertion in case["assertions"]:
            recorded = case["metadata"]["scores"].get(assertion["name"])
            if assertion["name"] == JUDGED:
                assert assertion["type"] == "llm_judge"
                continue
            verdict = _verdict(assertion, case["fixtures"]["output"])
            assert verdict == {"C": True, "I": False}.get(recorded, recorded), (case, assertion)
            compared += 1
    assert compared >= len(suite["cases"])


def _verdict(assertion: dict[str, Any], output: str) -> Any:
    if assertion["type"] == "python":
        function = CHECKS[assertion["callable"].partition(":")[2]]
        return function(output, {"config": assertion["config"]})
    values = assertion["value"]
    values = [values] if isinstance(values, str) else values
    return any(value.lower() in output.lower() for value in values)


def test_a_log_runs_with_its_recorded_answers(tmp_path: Path) -> None:
    ended = evalcore(
        "run", written("inspect", "mcq.json", tmp_path), "--json", store=tmp_path / "store"
    )
    assert {case["id"]: case["passed"] for case in ended.report["cases"]} == {
        "c": False,
        "g": True,
    }
    metrics = ended.report["cases"][0]["items"][0]["metrics"]
    assert metrics["latency_ms"] > 0
    assert metrics["output_tokens"] > 0


@pytest.mark.parametrize(
    ("function", "output", "config", "passes"),
    [
        ("match", "It costs $1,250.50!", {"targets": ["1250.5"], "numeric": True}, True),
        ("match", "25", {"targets": ["5"], "numeric": True}, False),
        ("match", "5 of 7", {"targets": ["5"], "numeric": True, "location": "begin"}, True),
        ("match", "(42)", {"targets": ["42"], "numeric": True, "location": "exact"}, False),
        ("match", "PARIS!", {"targets": ["paris"], "location": "exact"}, True),
        ("match", "PARIS", {"targets": ["paris"], "ignore_case": False}, False),
        ("exact", "The  Clock.", {"targets": ["a clock"]}, True),
        ("exact", "3.0", {"targets": ["3"]}, True),
        ("choice", "Hm.\nANSWER: **B**", {"targets": ["B"]}, True),
        ("choice", "ANSWER: A\nANSWER: A and C", {"targets": ["A", "C"]}, True),
        ("choice", "B", {"targets": ["B"]}, False),
        ("answer", "ANSWER: yes.\n", {"targets": ["Yes"], "pattern": "word"}, True),
        ("pattern", "a1 b2", {"targets": ["1"], "pattern": r"a(\d) b(\d)"}, True),
        (
            "pattern",
            "a1 b2",
            {"targets": ["1"], "pattern": r"a(\d) b(\d)", "match_all": True},
            False,
        ),
    ],
)
def test_checks_compare_as_inspects_scorers_do(
    function: str, output: str, config: dict[str, Any], passes: bool
) -> None:
    assert CHECKS[function](output, {"config": config}) is passes


def test_f1_is_that_of_the_best_target() -> None:
    config = {"targets": ["a red fox", "the cat"], "stop_words": ["fox"]}
    assert CHECKS["f1"]("One red, red fox", {"config": config}) == 0.5


def test_a_log_without_samples_says_so(tmp_path: Path) -> None:
    (tmp_path / "header.json").write_text('{"eval": {"task": "a"}, "results": {"scores": []}}')
    with pytest.raises(LoadError, match="the log has no samples"):
        converted(None, "header.json", tmp_path)


def test_datasets_are_test_files_whose_targets_are_contained(tmp_path: Path) -> None:
    suite, notes = converted("inspect", "capitals.jsonl", tmp_path)
    content = yaml.safe_load(suite.read_text("utf-8"))
    assert [test["assertions"] for test in content["tests"]] == [
        [{"type": "icontains", "value": "Lima"}],
        [{"type": "icontains-any", "value": ["red", "blue", "yellow"]}],
        [{"type": "icontains", "value": "42"}],
    ]
    assert [test["id"] for test in content["tests"]] == ["peru", "sample-2", "sample-3"]
    assert "a dataset does not say how answers are scored" in notes[0]


def test_choices_become_part_of_the_question(tmp_path: Path) -> None:
    suite, notes = converted("inspect", "choices.json", tmp_path)
    case = yaml.safe_load(suite.read_text("utf-8"))["cases"][0]
    assert "A) ant\nB) cat\nC) whale" in case["input"]
    assert case["assertions"][0]["config"] == {"targets": ["C"]}
    assert any(note.startswith("sample 2: sandbox:") for note in notes)


def test_samples_without_a_target_are_left_out(tmp_path: Path) -> None:
    suite, notes = converted("inspect", "riddles.csv", tmp_path)
    content = yaml.safe_load(suite.read_text("utf-8"))
    assert [test["id"] for test in content["tests"]] == ["r1", "r2"]
    assert content["tests"][0]["metadata"] == {"source": "book"}
    assert "sample 3: the sample is left out: it has no target to compare with" in notes


def test_archives_are_read_whatever_their_compression(tmp_path: Path) -> None:
    log = read_foreign_file(FILES / "inspect/basic.json").value
    samples = log.pop("samples")
    members = {"header.json": log} | {
        f"samples/{sample['id']}_epoch_1.json": sample for sample in samples
    }
    path = tmp_path / "log.eval"
    path.write_bytes(_zstd_archive({name: orjson.dumps(each) for name, each in members.items()}))
    assert read_foreign_file(path).value == {**log, "samples": samples}
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(LoadError, match="no archive that can be read"):
        read_foreign_file(path)


def _zstd_archive(members: dict[str, bytes]) -> bytes:
    """Return a zip archive as Inspect writes them: method 93, which zipfile cannot write."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, zstandard.compress(data))
    archived = bytearray(buffer.getvalue())
    sizes = {name: len(content) for name, content in members.items()}
    # The method and the size before compression, of local headers and of the directory.
    for signature, method_at, size_at, name_at in (
        (b"PK\x03\x04", 8, 22, 30),
        (b"PK\x01\x02", 10, 24, 46),
    ):
        position = archived.find(signature)
        while position >= 0:
            length = struct.unpack_from("<H", archived, position + size_at + 4)[0]
            name = bytes(archived[position + name_at : position + name_at + length]).decode()
            struct.pack_into("<H", archived, position + method_at, 93)
            struct.pack_into("<I", archived, position + size_at, sizes[name])
            position = archived.find(signature, position + 4)
    return bytes(archived)
