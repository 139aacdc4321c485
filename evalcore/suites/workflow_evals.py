"""`run_eval`: the evals of a workflow file, with an executor of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from pathlib import Path
from typing import Any

from pydantic import with_config
from typing_extensions import TypedDict

from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.mode import Mode
from evalcore.model.scoring import reaches
from evalcore.model.suite import Suite
from evalcore.model.target import Target, Variant
from evalcore.pipeline.finish import evaluate
from evalcore.pipeline.plan import PlanOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.planning.spool import spool_cases
from evalcore.settings import read_settings
from evalcore.shapes import STRICT, Share
from evalcore.suites.define import LocalNames
from evalcore.suites.report import CheckResult, SuiteReport
from evalcore.suites.run import (
    MODE,
    NAMES,
    Store,
    check_arguments,
    chosen_store,
    import_policy,
    off_the_loop,
    report_of,
)
from evalcore.workflow.events import NO_EXECUTOR

Executor = Callable[[Any], Any]
_EXECUTOR = "executor"


@dataclass(frozen=True, slots=True)
class BlockEval:
    """The assertions of one block."""

    score: float
    passed: bool
    results: list[CheckResult]


@dataclass(frozen=True, slots=True)
class CaseEval:
    """One case; `error` says why it has no outputs. It scores 0.0 then."""

    case_id: str
    passed: bool
    score: float
    block_results: Mapping[str, BlockEval] = field(default_factory=dict)
    error: str | None = None
    variant: str = "default"
    iteration: int = 0


@dataclass(frozen=True, slots=True)
class EvalRun:
    """What the evals of a workflow file came to.

    `passed` is score ≥ threshold; without a measured case nothing passes.
    """

    passed: bool
    score: float
    threshold: float
    case_results: list[CaseEval]
    report: SuiteReport | None = field(default=None, repr=False, compare=False)

    @property
    def failed_cases(self) -> int:
        """How many cases did not pass: a low threshold can pass a suite that has some."""
        return sum(not case.passed for case in self.case_results)


class NoExecutorProvidedError(RuntimeError):
    """A case can be neither given nor executed; `result` holds those of the other cases."""

    def __init__(self, message: str, result: EvalRun) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[NoExecutorProvidedError], tuple[str, EvalRun]]:
        """Survive pickling."""
        return type(self), (str(self), replace(self.result, report=None))


@with_config(STRICT)
class _Choices(TypedDict):
    mode: MODE
    cases: NAMES
    threshold: Share | None


def run_eval(
    path: str | os.PathLike[str],
    executor: Executor | None = None,
    *,
    store: Store | None = None,
    mode: str = Mode.LIVE,
    threshold: float | None = None,
    cases: Sequence[str] = (),
) -> EvalRun:
    """Evaluate a workflow file and return its result.

    Cases whose fixtures cover what they expect are evaluated from them. For any other
    `executor(case)`, sync or async, returns a mapping of block outputs; `case` has `id`, `inputs`,
    `fixtures` and `expected`. Without an executor the project's own engine runs the workflow; where
    that is not possible, `RuntimeError` is raised after the other cases have been evaluated, and
    its `result` is theirs. Raises `LoadError` for mistakes in the file, `UsageError` for a
    `threshold` that is not from 0 to 1 and other choices that mean nothing.
    """
    given = {"mode": mode, "cases": cases, "threshold": threshold}
    choices = check_arguments(_Choices, given, "run_eval()")
    return off_the_loop(lambda: _run(Path(path), executor, store, choices))


def _run(path: Path, executor: Executor | None, store: Store | None, choices: _Choices) -> EvalRun:
    settings, mode = read_settings(os.environ, Path.cwd()), choices["mode"]
    options = LoadOptions(
        format="workflow-harness",
        threshold=choices["threshold"],
        cases=frozenset(choices["cases"]),
        secrets_required=mode not in {Mode.REPLAY, Mode.AUTO},
        executor=executor is not None,
    ).configured(settings, os.environ)
    suite = load_suite(path, options)
    names = LocalNames()
    if executor is not None:
        suite = _with_executor(suite, executor, names)
    execute = ExecuteOptions(
        imports=import_policy(suite.definition.source.folder),
        settings=settings,
        objects=names.objects,
    )
    with evaluate(suite, chosen_store(store), execute, PlanOptions(mode=mode)) as view:
        report = report_of(view, suite)
    threshold = suite.definition.policy.threshold
    return _result(report, 1.0 if threshold is None else threshold)


def _with_executor(suite: Suite, executor: Executor, names: LocalNames) -> Suite:
    """Return the suite with the executor as the target of what is not given."""
    options = {**names.describe(executor), "call": "executor"}
    definition = suite.definition
    variants = tuple(Variant(variant.id, None, {}, variant.tags) for variant in definition.variants)
    executed = replace(
        definition,
        targets={_EXECUTOR: Target(_EXECUTOR, "flow", options)},
        default_target=_EXECUTOR,
        variants=variants,
    )
    cases = spool_cases(case._replace(reason_not_executable=None) for case in suite.cases)
    return Suite(executed, cases, suite.warnings)


def _result(report: SuiteReport, threshold: float) -> EvalRun:
    """Return the result; raise `NoExecutorProvidedError` if a case could not be executed."""
    cases: list[CaseEval] = []
    refused: list[str] = []
    for case in report.case_results:
        if case.error_kind == "not_executable":
            refused.append(NO_EXECUTOR.format(id=case.case))
            continue
        blocks: dict[str, list[CheckResult]] = {}
        for result in case.assertions:
            blocks.setdefault(result.block or "", []).append(result)
        cases.append(
            CaseEval(
                case_id=case.case,
                passed=case.passed,
                score=case.score or 0.0,
                block_results={name: _block(results) for name, results in blocks.items()},
                error=case.error,
                variant=case.variant,
                iteration=case.iteration,
            )
        )
    whole = not refused and report.score is not None
    score = fsum(case.score for case in cases) / len(cases) if cases else 0.0
    if whole and report.score is not None:
        score = report.score
    measured = any(case.outcome in {"passed", "failed"} for case in report.case_results)
    passed = reaches(score, threshold) and measured and not refused
    run = EvalRun(passed, score, threshold, cases, report)
    if refused:
        raise NoExecutorProvidedError(refused[0], run)
    return run


def _block(results: Sequence[CheckResult]) -> BlockEval:
    """Return Σ(score·weight)/Σ(weight), 0.0 without any weight, and whether every one passed."""
    total = fsum(result.weight for result in results)
    score = fsum(result.score * result.weight for result in results) / total if total > 0 else 0.0
    return BlockEval(score, all(result.passed for result in results), list(results))
