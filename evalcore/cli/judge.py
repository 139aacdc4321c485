"""`evalcore judge calibrate`: how well a judge agrees with people."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson

from evalcore.cli.number_range import NumberRange
from evalcore.cli.options import chosen_store, json_option, mode_option, settings, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import ExitCode, UsageError
from evalcore.formats.assertions import AssertionReader
from evalcore.formats.graders import Graders
from evalcore.formats.labels import Label, read_labels
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.formats.targets import Targets
from evalcore.formats.variables import variables_for
from evalcore.isolation.mode import Isolation
from evalcore.model.assertion import Assertion
from evalcore.model.mode import Mode
from evalcore.model.suite import Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.pipeline.session import ExecuteOptions
from evalcore.problems import Problems
from evalcore.report.document import on_one_line
from evalcore.storage.run_names import choose_run
from evalcore.suites.calibration import (
    MIN_KAPPA,
    Calibration,
    calibrate,
    compared,
    judged_assertion,
)
from evalcore.trust.imports import ImportPolicy
from evalcore.wording import counted

_MAX_LISTED = 20
_SHARE = NumberRange(0, 1)


@click.group()
def judge() -> None:
    """Look at the quality of judges."""


@dataclass(frozen=True, slots=True)
class _JudgedAssertion:
    """What the judge is asked: an assertion, and the definition of its suite."""

    definition: SuiteDefinition
    assertion: Assertion


@judge.command("calibrate")
@click.argument("labels", type=click.Path(path_type=Path), required=False)
@click.option("--annotations", "run_id", metavar="RUN", help="Labels of people on RUN's outputs.")
@click.option("--question", metavar="NAME", help="Which assertion of people, if RUN has several.")
@click.option("--suite", type=click.Path(path_type=Path), help="Whose judged assertion is asked.")
@click.option("--assertion", metavar="NAME", help="Which of them, if there are several.")
@click.option("--judge", "name", metavar="TARGET", help="A judge of the nearest targets.yaml.")
@click.option("--model", help="Another model of it.")
@click.option("--prompt", help="Its prompt, or the file of it.")
@click.option("--threshold", type=_SHARE, default=0.8, help="The score that passes.  [0.8]")
@click.option("--min-kappa", type=NumberRange(-1, 1), help=f"Least κ.  [{MIN_KAPPA:g}]")
@click.option("--observed", type=_SHARE, help="A pass rate that the judge measured, to correct.")
@mode_option
@store_option
@json_option
def calibrate_(labels: Path | None, as_json: bool, store: str | None, **flags: Any) -> int:
    """Compare a judge with the labels of people: agreement, Cohen's κ, corrected accuracy.

    LABELS is a file of tests (JSONL, CSV, Parquet, YAML) with `output` and `label` (pass or fail).
    With --annotations RUN they are what people said of the outputs of RUN instead.
    Where each row has a `judge`, that verdict is compared and no model is asked. Exit code 1: κ is
    below --min-kappa; 4: the judge gave no verdict on some.
    """
    rows, source = _labels(labels, store, flags)
    least = MIN_KAPPA if flags["min_kappa"] is None else flags["min_kappa"]
    if all(row.judged is not None for row in rows) and not (flags["suite"] or flags["name"]):
        judged = {row.id: row.judged for row in rows}
        calibration = compared(rows, judged, observed=flags["observed"], min_kappa=least)
    else:
        calibration = _ask(source, rows, store, least, flags)
    if as_json:
        click.echo(on_one_line(orjson.dumps(calibration.values()).decode()))
    else:
        for line in _lines(calibration):
            click.echo(one_line(line))
    if calibration.errors:
        return int(ExitCode.ERRORS)
    failed = flags["min_kappa"] is not None and not calibration.calibrated
    return int(ExitCode.GATE_FAILED if failed else ExitCode.PASS)


def _labels(
    path: Path | None, store: str | None, flags: Mapping[str, Any]
) -> tuple[list[Label], Path]:
    """Return the labels, and the file beside which targets are looked for."""
    run_id = flags["run_id"]
    if (path is None) == (run_id is None):
        raise UsageError("name the labels: a file of them, or --annotations RUN")
    if path is not None:
        return read_labels(path, flags["threshold"]), path
    from evalcore.suites.calibration import annotated_labels

    run = choose_run(chosen_store(store), str(run_id))
    return annotated_labels(run, flags["question"]), Path.cwd() / run.run_id


def _ask(
    path: Path, rows: list[Label], store: str | None, least: float, flags: Mapping[str, Any]
) -> Calibration:
    without = next((row for row in rows if row.output is None), None)
    if without is not None:
        raise UsageError(f"{path}: label '{without.id}' has no 'output' to ask a judge about")
    configured = settings()
    options = LoadOptions().configured(configured, os.environ, store)
    question = _of_suite(flags, options) if flags["suite"] else _of_options(path, flags, options)
    folder = Path(question.definition.source.folder)
    policy = ImportPolicy(roots=(Path.cwd(), folder), allowed=configured.allow_imports)
    return calibrate(
        question.definition,
        question.assertion,
        rows,
        chosen_store(store),
        mode=flags["mode"] or Mode.LIVE,
        execute=ExecuteOptions(
            imports=policy, settings=configured, isolation=Isolation(configured.isolation)
        ),
        observed=flags["observed"],
        min_kappa=least,
    )


def _of_suite(flags: Mapping[str, Any], options: LoadOptions) -> _JudgedAssertion:
    for key in ("name", "model", "prompt"):
        if flags[key] is not None:
            raise UsageError("--suite says who judges; leave out --judge, --model and --prompt")
    suite = load_suite(flags["suite"], options)
    return _JudgedAssertion(suite.definition, judged_assertion(suite, flags["assertion"]))


def _of_options(path: Path, flags: Mapping[str, Any], options: LoadOptions) -> _JudgedAssertion:
    """Return a judge of the nearest targets.yaml with the given prompt."""
    if flags["assertion"] is not None:
        raise UsageError("--assertion chooses one of a --suite")
    folder = path.resolve().parent
    problems = Problems(str(path), lambda _: None)
    targets = Targets(None, folder, variables_for(folder, options), problems)
    graders = Graders(folder, targets)
    raw: dict[str, Any] = {"type": "llm-grader", "threshold": flags["threshold"]}
    for key, option in (("judge", "name"), ("model", "model"), ("prompt", "prompt")):
        if flags[option] is not None:
            raw[key] = flags[option]
    assertion = AssertionReader(graders).read(raw, (), problems)
    if assertion is None:
        raise UsageError("; ".join(problem.message for problem in problems.noted))
    for other in graders.file_problems:
        other.raise_if_any()
    if graders.default is None and "judge" not in raw:
        raise UsageError("name the judge: --suite FILE, or --judge TARGET of a targets.yaml")
    definition = SuiteDefinition(
        name=path.stem,
        format=Format.TEST_FILE,
        source=Source(str(path), str(folder), ""),
        policy=Policy(ScoreRule.WEIGHTED, gates=()),
        targets=targets.used,
        judge=graders.default,
    )
    return _JudgedAssertion(definition, assertion)


def _lines(calibration: Calibration) -> Iterator[str]:
    values, confusion = calibration.values(), calibration.confusion
    who = ", ".join(calibration.judges)
    yield counted(confusion.n, "label") + (f", judged by {who}" if who else "")
    yield "                 judge: pass  judge: fail"
    yield f"  people: pass   {confusion.true_pass:>11}  {confusion.false_fail:>11}"
    yield f"  people: fail   {confusion.false_pass:>11}  {confusion.true_fail:>11}"
    interval = values["agreement_interval"]
    within = "" if interval is None else f" [{interval['low']:.4f}, {interval['high']:.4f}]"
    yield f"agreement {_rate(values['agreement'])}{within}, Cohen's κ {_rate(values['kappa'])}"
    yield (
        f"sensitivity {_rate(values['sensitivity'])}, specificity {_rate(values['specificity'])}"
    )
    yield (
        f"pass rate {_rate(values['observed_rate'])}, "
        f"corrected {_rate(values['corrected_accuracy'])}"
    )
    for title, listed in (
        ("disagree", calibration.disagreements),
        ("no verdict", calibration.errors),
    ):
        if listed:
            more = len(listed) - _MAX_LISTED
            tail = f" and {more} more" if more > 0 else ""
            yield f"{title}: {', '.join(listed[:_MAX_LISTED])}{tail}"
    word = "CALIBRATED" if calibration.calibrated else "NOT CALIBRATED"
    yield f"{word}: κ {_rate(calibration.kappa)}, at least {calibration.min_kappa:g} is wanted"


def _rate(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"
