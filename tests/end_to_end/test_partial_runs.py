"""A run of a part of a suite does not stand for the suite: from the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evalcore.suites.run import run_suite
from tests.support.judged import given, judge, reply, write_suite
from tests.support.model_server import model_server
from tests.support.shell import INLINE, Ended, evalcore

CODE = """def answer(text):
    if text == "raise":
        raise ValueError(text)
    return text
"""


def write(folder: Path, *answers: str, **section: Any) -> Path:
    """Write a suite of cases a, b, … that answer with these texts and have to say `ok`."""
    (folder / "answers.py").write_text(CODE, "utf-8")
    tests = [
        {
            "id": name,
            "input": text,
            "tags": [name],
            "assertions": [{"type": "equals", "value": "ok"}],
        }
        for name, text in zip("abcd", answers, strict=False)
    ]
    variants = {"variants": [{"id": "one"}, {"id": "two"}]}
    target = {"name": "own", "provider": "python", "callable": "answers:answer"}
    suite = {"name": "s", "targets": [target], "execution": {"target": "own"}, "tests": tests}
    path = folder / "s.eval.yaml"
    path.write_text(json.dumps(suite | {"evalcore": {**variants, **section}}), "utf-8")
    return path


def run(path: Path, store: Path, *flags: str) -> Ended:
    return evalcore("run", "--json", path, *flags, store=store, cwd=path.parent, env=INLINE)


def run_id(ended: Ended) -> str:
    assert ended.out, ended.err
    return str(ended.report["run"]["id"])


# how the run is cut: flags, answers, the section of the suite, the reason
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Any], str]] = {
    "--case": (("--case", "a"), ("ok", "ok"), {}, "chosen by --case"),
    "--tag": (("--tag", "b"), ("ok", "ok"), {}, "chosen by --tag"),
    "--variant": (("--variant", "two"), ("ok", "ok"), {}, "chosen by --variant"),
    "errors": ((), ("ok", "raise"), {"errors": "exclude", "max_error_share": 0.4},
               "2 of 4 items in error"),
    "a limit": ((), ("ok", "ok"), {"limits": {"max_duration_s": 0.000001}}, "skipped"),
}  # fmt: skip


def test_partial_runs_do_not_stand_for_their_suite(tmp_path: Path, store: Path) -> None:
    gates = {"gates": [{"gate": "pass_rate", "threshold": 0}]}
    whole = run_id(run(write(tmp_path, "ok", "ok", **gates), store))
    parts = {}
    for flags, answers, section, reason in PARTS.values():
        part = run_id(run(write(tmp_path, *answers, **gates, **section), store, *flags))
        refused = evalcore("baseline", "set", "s", part, store=store)
        assert (refused.code, refused.out, reason in refused.err) == (2, "", True), refused.err
        parts[part] = reason
    for name in ("last", "last-pass"):
        assert evalcore("runs", "show", f"s/{name}", "--json", store=store).report["id"] == whole
    assert evalcore("runs", "show", "latest", "--json", store=store).report["id"] == part
    trend = evalcore("history", "s", "--json", store=store).report
    assert {point["run"] for point in trend["points"]} == {whole}
    assert {point["run"] for point in trend["partial"]} == set(parts)
    assert all(parts[point["run"]] in point["part"] for point in trend["partial"])
    forced = evalcore("baseline", "set", "s", part, "--force", store=store)
    assert forced.code == 0, forced.err


def test_a_run_of_everything_is_whole(tmp_path: Path, store: Path) -> None:
    allowed = {"errors": "exclude", "max_error_share": 0.5}
    path = write(tmp_path, "ok", "raise", **allowed)
    whole = run_id(run(path, store, "--variant", "one", "--variant", "two", "-n", "2"))
    assert evalcore("baseline", "set", "s", "latest", store=store).code == 0
    assert evalcore("runs", "show", "s/last", "--json", store=store).report["id"] == whole


def test_failed_cases_and_one_chosen_in_python_are_a_part(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path, "ok", "wrong")
    first = run_id(run(path, store))
    failed = run_id(run(path, store, "--failed", "last"))
    chosen = run_suite(path, store=store, cases=["a"]).run_id
    for part, reason in ((failed, "chosen by --failed last"), (chosen, "chosen by")):
        refused = evalcore("baseline", "set", "s", part, store=store)
        assert (refused.code, reason in refused.err) == (2, True), refused.err
    assert evalcore("runs", "show", "s/last", "--json", store=store).report["id"] == first


def test_the_latest_run_as_baseline_is_the_newest_whole_one(tmp_path: Path, store: Path) -> None:
    gates = {"gates": ["no_regressions"]}
    whole = run_id(run(write(tmp_path, "ok", "ok", **gates), store))
    part = run_id(run(write(tmp_path, "ok", "ok", **gates), store, "--case", "a"))
    broken = run(write(tmp_path, "ok", "wrong", **gates), store, "--baseline", "latest")
    assert (broken.code, broken.report["comparison"][0]["run"]) == (1, whole)
    against = run(write(tmp_path, "ok", "wrong", **gates), store, "--baseline", part)
    assert (against.code, against.out) == (2, "")
    assert "is of a part of its suite (chosen by --case) and cannot be a baseline" in against.err
    evalcore("baseline", "set", "s", part, "--name", "forced", "--force", store=store)
    forced = run(write(tmp_path, "ok", "wrong", **gates), store, "--baseline", "forced")
    assert forced.report["comparison"][0]["run"] == part
    compared = evalcore("compare", whole, part, store=store)
    assert compared.code == 0, compared.err
    assert f"warning: run {part} is of a part of its suite (chosen by --case)" in compared.err
    assert whole not in compared.err


def test_a_report_and_a_listing_say_why_a_run_is_partial(tmp_path: Path, store: Path) -> None:
    path = write(tmp_path, "ok", "ok")
    ended = evalcore("run", path, store=store, env=INLINE)
    assert "partial" not in ended.out + evalcore("runs", "list", store=store).out
    ended = evalcore("run", path, "--case", "a", store=store, env=INLINE)
    assert "partial run (" in ended.out + ended.err
    again = evalcore("report", "latest", store=store)
    assert "partial run (chosen by --case): it cannot be a baseline" in again.out
    assert "partial: chosen by --case" in evalcore("runs", "list", store=store).out


def test_a_calibration_is_no_run_of_a_suite(tmp_path: Path, store: Path) -> None:
    with model_server(script=lambda _: reply(1.0)) as server:
        path = write_suite(
            tmp_path, [given("x", id="a", criteria="polite")], targets=[judge(server)]
        )
        whole = run_id(evalcore("run", "--json", path, store=store, env=INLINE))
        labels = tmp_path / "labels.jsonl"
        labels.write_text('{"id": "1", "input": "hi", "output": "x", "label": "pass"}\n', "utf-8")
        calibrated = evalcore("judge", "calibrate", labels, "--suite", path, "--json", store=store)
    assert calibrated.report["run"], calibrated.err
    for name in ("latest", "last"):
        assert evalcore("runs", "show", name, "--json", store=store).report["id"] == whole
    assert evalcore("history", "sync", "--json", store=store).report["total"] == 1
