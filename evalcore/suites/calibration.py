"""A judge against people: asked about labelled outputs, compared, and noted in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from evalcore.annotations.labels import judged
from evalcore.annotations.queue import AnnotationQueue, AnnotationTask
from evalcore.checks.human import Human, is_human
from evalcore.checks.judged import JudgedCheck, Similar
from evalcore.checks.registry import load_check
from evalcore.errors import UsageError
from evalcore.formats.labels import Label
from evalcore.judging.panel import Panel
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence
from evalcore.model.identity import JUDGED, judge_name
from evalcore.model.scoring import reaches
from evalcore.model.suite import Case, Policy, ScoreRule, Suite, SuiteDefinition
from evalcore.pipeline.finish import evaluate
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.plan import PlanOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.planning.spool import CaseSpool
from evalcore.statistics.agreement import (
    Confusion,
    agreement,
    cohen_kappa,
    corrected_rate,
    sensitivity,
    specificity,
)
from evalcore.statistics.intervals import wilson
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore
from evalcore.wording import suggest

MIN_KAPPA = 0.6


@dataclass(frozen=True, slots=True)
class Calibration:
    """How a judge agrees with people. `None` where a number cannot be computed."""

    confusion: Confusion
    disagreements: tuple[str, ...]
    errors: tuple[str, ...]
    observed: float | None
    min_kappa: float
    judges: tuple[str, ...] = ()
    prompt_sha256: str | None = None
    run: str | None = None

    @property
    def kappa(self) -> float | None:
        """Cohen's κ."""
        return cohen_kappa(self.confusion)

    @property
    def calibrated(self) -> bool:
        """Whether κ reaches the least that is asked for, and every label was judged."""
        return not self.errors and self.kappa is not None and reaches(self.kappa, self.min_kappa)

    def values(self) -> dict[str, Any]:
        """Return the calibration as JSON values."""
        confusion = self.confusion
        se, sp = sensitivity(confusion), specificity(confusion)
        observed = self.observed
        if observed is None and confusion.n:
            observed = (confusion.true_pass + confusion.false_pass) / confusion.n
        is_known = None not in {se, sp, observed}
        corrected = corrected_rate(observed or 0.0, se or 0.0, sp or 0.0) if is_known else None
        interval = wilson(confusion.agreed, confusion.n)
        return {
            "calibrated": self.calibrated,
            "n": confusion.n,
            "agreement": agreement(confusion),
            "agreement_interval": None if interval is None else interval._asdict(),
            "kappa": self.kappa,
            "min_kappa": self.min_kappa,
            "confusion": confusion._asdict(),
            "sensitivity": se,
            "specificity": sp,
            "observed_rate": observed,
            "corrected_accuracy": corrected,
            "disagreements": list(self.disagreements),
            "errors": list(self.errors),
            "judges": list(self.judges),
            "prompt_sha256": self.prompt_sha256,
            "run": self.run,
        }


def compared(
    labels: Sequence[Label],
    judged: Mapping[str, bool | None],
    *,
    observed: float | None = None,
    min_kappa: float = MIN_KAPPA,
) -> Calibration:
    """Return how verdicts by id (None: the judge gave none) agree with the labels."""
    counts = dict.fromkeys(Confusion._fields, 0)
    disagreements, errors = [], []
    for label in labels:
        verdict = judged.get(label.id)
        if verdict is None:
            errors.append(label.id)
            continue
        agrees = "true" if verdict is label.human else "false"
        counts[f"{agrees}_{'pass' if verdict else 'fail'}"] += 1
        if verdict is not label.human:
            disagreements.append(label.id)
    confusion = Confusion(**counts)
    return Calibration(confusion, tuple(disagreements), tuple(errors), observed, min_kappa)


def judged_assertion(suite: Suite, name: str | None) -> Assertion:
    """Return the suite's judged assertion (of this name); raise `UsageError` unless it is one."""
    judged: dict[bytes, Assertion] = {}
    for case in suite.cases:
        for assertion in case.assertions:
            if assertion.check in JUDGED and name in (None, assertion.name, assertion.type):
                key = orjson.dumps([assertion.check, assertion.params])
                judged.setdefault(key, assertion)
    if len(judged) == 1:
        return next(iter(judged.values()))
    names = ", ".join(sorted({assertion.name for assertion in judged.values()})) or "none"
    what = "has no judged assertion" if not judged else "has several judged assertions"
    called = "" if name is None else f" called '{name}'"
    raise UsageError(f"suite '{suite.definition.name}' {what}{called}; they are: {names}")


def calibrate(
    definition: SuiteDefinition,
    assertion: Assertion,
    labels: Sequence[Label],
    store: ObjectStore,
    *,
    mode: str,
    execute: ExecuteOptions,
    observed: float | None = None,
    min_kappa: float = MIN_KAPPA,
) -> Calibration:
    """Ask the assertion's judges about every label, in a run of its own."""
    spool = CaseSpool()
    for label in labels:
        spool.append(_case(label, assertion))
    policy = Policy(ScoreRule.WEIGHTED, gates=(), threshold=0.0)
    changed = replace(
        definition,
        name=f"{definition.name}-calibration",
        policy=policy,
        scorers=(),
        variants=definition.variants[:1],
        baseline=None,
        baseline_run=None,
    )
    verdicts: dict[str, bool | None] = {}
    digest: str | None = None
    suite = Suite(changed, spool)
    decide = DecideOptions(execute.imports, execute.objects)
    with evaluate(suite, store, execute, PlanOptions(mode=mode, calibrates=True), decide) as view:
        run = view.report.run.id
        for case in view.records():
            (item,) = case["items"]
            result = (item["assertions"] or [{"outcome": "error"}])[0]
            verdicts[case["id"]] = {"passed": True, "failed": False}.get(result["outcome"])
            digest = (result.get("details") or {}).get("prompt_sha256", digest)
    calibration = compared(labels, verdicts, observed=observed, min_kappa=min_kappa)
    own = changed.targets.get(changed.default_target or "")
    check = load_check(assertion.check, assertion.params)
    panel = check.panel if isinstance(check, JudgedCheck | Similar) else Panel()
    judges = (judge_name(spec.name, own, changed) for spec in panel.judges)
    names = tuple(name for name in judges if name is not None)
    return replace(calibration, judges=names, prompt_sha256=digest, run=run)


def _case(label: Label, assertion: Assertion) -> Case:
    return Case(
        id=label.id,
        input=label.input,
        assertions=(assertion._replace(negate=False, required=None, block=None, transform=None),),
        fixture=Evidence(label.output or ""),
        threshold=0.0,
        expected_output=label.expected_output,
        criteria=label.criteria,
        metadata=label.metadata,
    )


def annotated_labels(run: StoredRun, assertion: str | None) -> list[Label]:
    """Return a label for each output of a run on which people have decided.

    It passes where their assertion does. `assertion` is its name or its question; without one the
    run has to ask only one question. Raises `UsageError` if there is nothing to compare with.
    """
    with AnnotationQueue(run) as queue:
        tasks = _tasks(queue, assertion)
        labels = [label for task in tasks if (label := _label(queue, task)) is not None]
    if not labels:
        raise UsageError(
            f"people have decided on no output of run {run.run_id}; "
            f"`evalcore annotate {run.run_id}` asks them"
        )
    return labels


def _tasks(queue: AnnotationQueue, name: str | None) -> list[AnnotationTask]:
    tasks = [task for task in queue.tasks if name in (None, task.assertion, task.question)]
    questions = sorted({task.question for task in tasks})
    names = sorted({task.question for task in queue.tasks} | {t.assertion for t in queue.tasks})
    if not tasks:
        hint = "" if name is None else suggest(name, names)
        raise UsageError(f"run {queue.run_id} has no such question for people.{hint}")
    if len(questions) > 1:
        listed = ", ".join(map(repr, questions))
        message = f"run {queue.run_id} asks several questions; choose by --question: {listed}"
        raise UsageError(message)
    return tasks


def _label(queue: AnnotationQueue, task: AnnotationTask) -> Label | None:
    case, content = queue.case(task), queue.content(task)
    consensus = judged(queue.book.content_records(task.key), task.form, task.annotators)
    check = next(
        check
        for assertion in case.assertions
        if is_human(assertion)
        and (check := load_check("human", assertion.params.get("params") or assertion.params))
        and isinstance(check, Human)
        and (check.question, check.form) == (task.question, task.form)
    )
    if consensus.missing:
        return None
    return Label(
        id=f"{task.case_id} [{task.variant}, {task.iteration}]",
        human=check.passes(consensus),
        output=content.output,
        input=case.input,
        expected_output=case.expected_output,
        criteria=case.criteria,
        metadata=case.metadata,
    )
