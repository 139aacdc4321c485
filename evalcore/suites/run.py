"""`run_suite`: a suite through the pipeline; the report as Python values."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar, Unpack

from evalcore.errors import UsageError
from evalcore.execution.readiness import check_ready
from evalcore.execution.stopper import Stopper
from evalcore.formats.options import LoadOptions
from evalcore.isolation.mode import Isolation
from evalcore.model.gate import Decision
from evalcore.model.run import Mode
from evalcore.model.suite import AUTO, ITERATIONS_FORMS, Iterations, Suite, parse_iterations
from evalcore.pipeline.finish import RunView, evaluate
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.plan import PlanOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.redaction.redactor import cover_exception
from evalcore.report.document import report_head
from evalcore.settings import read_settings
from evalcore.storage.address import open_store
from evalcore.storage.store import ObjectStore
from evalcore.suites.define import EvalSuite
from evalcore.suites.report import SuiteReport, SuiteSummary, VariantResult
from evalcore.suites.suite_file import SuiteInFile, as_suite_file
from evalcore.trust.imports import ImportPolicy
from evalcore.wording import suggest

Store = ObjectStore | str | os.PathLike[str]
T = TypeVar("T")
_OPTION_NAMES: Final = {
    "--baseline": "baseline_run",
    "--case": "cases",
    "--exclude-tag": "excluded_tags",
    "--tag": "tags",
    "--variant": "variants",
}


class RunChoices(TypedDict, total=False):
    """What a call lays over a suite.

    `variants`, `cases`, `tags` and `excluded_tags` leave only those; `baseline` is another variant;
    `baseline_run` an earlier run's id, or a named baseline. `iterations` is a number, `auto` or
    `auto:MAX`. `allow_imports` are modules that the
    suite may name from anywhere. `isolation` is `inline` or `process`, for functions that the suite
    names as `module:function`; the default is `inline` for a suite of `define_suite`, and what the
    configuration says (`process`) for a file.
    """

    variants: Iterable[str]
    cases: Iterable[str]
    tags: Iterable[str]
    excluded_tags: Iterable[str]
    baseline: str
    baseline_run: str
    iterations: int | str
    concurrency: int
    strict: bool
    allow_imports: Iterable[str]
    isolation: str


def run_suite(
    suite: EvalSuite | str | os.PathLike[str],
    mode: str = Mode.LIVE,
    *,
    store: Store | None = None,
    **chosen: Unpack[RunChoices],
) -> SuiteReport:
    """Run the suite and return its report; `mode` is live, record, replay or auto.

    The suite is what `define_suite` returned, or the path of a file in any format. The run stands
    in the store: a folder, `s3://bucket/prefix`, or an open store; by default that of the command
    line (EVALCORE_STORE, else `.evalcore`), so that later runs have a history.
    Raises `SuiteError` (for a file `LoadError`) for choices that do not fit the suite, with every
    mistake in it, `UsageError` for unknown ones.
    """
    stopper = Stopper()
    call = _Call(suite, mode, store, chosen, stopper)
    return off_the_loop(call.run)


async def run_suite_async(
    suite: EvalSuite | str | os.PathLike[str],
    mode: str = Mode.LIVE,
    *,
    store: Store | None = None,
    **chosen: Unpack[RunChoices],
) -> SuiteReport:
    """Run the suite as `run_suite` does, without blocking the event loop.

    Flows run in an event loop of their own, in another thread. Cancelled, it stops between items.
    """
    stopper = Stopper()
    call = _Call(suite, mode, store, chosen, stopper)
    try:
        return await asyncio.to_thread(call.run)
    except asyncio.CancelledError:
        stopper.stop()
        raise


def off_the_loop(call: Callable[[], T]) -> T:
    """Return what `call` does; in a thread of its own if this one has a running event loop."""
    if not _is_in_loop():
        return call()
    results: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again where it was called
            raised.append(error)

    thread = threading.Thread(target=run, name="evalcore-run")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return results[0]


def _is_in_loop() -> bool:
    """Whether this thread has a running event loop. What is raised later has no part in this."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_mode(mode: object, example: str) -> None:
    """Raise `UsageError` for what is no mode; `example` is a call that works."""
    if not isinstance(mode, str) or mode not in set(Mode):
        raise UsageError(
            f"unknown mode {repr(mode)[:80]}: 'mode' is one of {', '.join(Mode)}, as in {example}"
        )


def names_chosen(names: Iterable[str] | None, key: str) -> frozenset[str]:
    """Return names; raise `UsageError` for a text, whose letters would be the names."""
    if isinstance(names, str):
        raise UsageError(f"'{key}' is a list, as in {key}=[{repr(names)[:80]}]")
    chosen = None if names is not None and not isinstance(names, Iterable) else tuple(names or ())
    if chosen is None or not all(isinstance(name, str) for name in chosen):
        raise UsageError(f"'{key}' is a list of texts, not {repr(names)[:80]}")
    return frozenset(chosen)


def name_chosen(name: object, key: str) -> str | None:
    """Return a name, None if there is none; raise `UsageError` for what is no text."""
    if name is None or (isinstance(name, str) and name):
        return name
    raise UsageError(f"'{key}' is a text that is not empty, not {repr(name)[:80]}")


def chosen_store(store: Store | None) -> ObjectStore:
    """Return the store of a call; by default the one that the configuration names."""
    if store is None:
        return open_store(read_settings(os.environ, Path.cwd()).store)
    if isinstance(store, str | os.PathLike):
        return open_store(os.fspath(store))
    return store


def import_policy(folder: str, allow_imports: Iterable[str] = ()) -> ImportPolicy:
    """Return what a suite of this folder may import: beside it, below here, and what is allowed."""
    allowed = read_settings(os.environ, Path.cwd()).allow_imports
    return ImportPolicy(roots=(Path(folder), Path.cwd()), allowed=(*allowed, *allow_imports))


class _Call:
    """One call of `run_suite`."""

    def __init__(
        self,
        suite: EvalSuite | str | os.PathLike[str],
        mode: str,
        store: Store | None,
        chosen: RunChoices,
        stopper: Stopper,
    ) -> None:
        unknown = set(chosen) - set(RunChoices.__annotations__)
        if unknown:
            hint = suggest(min(unknown), RunChoices.__annotations__)
            raise TypeError(f"run_suite() has no '{min(unknown)}'.{hint}")
        named = suite if isinstance(suite, EvalSuite) else as_suite_file(suite)
        if named is None:
            raise UsageError(
                "run_suite() takes what define_suite() returns, or the path of a suite file, not "
                f"{repr(suite)[:80]}"
            )
        check_mode(mode, "run_suite(suite, mode='live')")
        _check_store(store)
        self._suite, self._mode, self._store = named, mode, store
        self._chosen, self._stopper = chosen, stopper

    def run(self) -> SuiteReport:
        """Run the suite and return its report; what is raised holds no secret."""
        try:
            return self._run()
        except BaseException as error:  # goes on to the caller without its secrets
            cover_exception(error)
            raise

    def _run(self) -> SuiteReport:
        chosen = self._chosen
        options = PlanOptions(mode=self._mode)
        allowed = tuple(sorted(names_chosen(chosen.get("allow_imports"), "allow_imports")))
        configured = read_settings(os.environ, Path.cwd())
        loaded = self._read((*configured.allow_imports, *allowed))
        check_ready(loaded.definition, loaded.cases, mode=self._mode)
        imports = import_policy(loaded.definition.source.folder, allowed)
        default = configured.isolation if isinstance(self._suite, SuiteInFile) else Isolation.INLINE
        execute = ExecuteOptions(
            imports=imports,
            concurrency=chosen.get("concurrency"),
            stopper=self._stopper,
            settings=configured,
            objects=loaded.objects,
            isolation=_isolation(chosen.get("isolation"), default),
        )
        decide = DecideOptions(imports, loaded.objects, execute.isolation)
        with evaluate(loaded, chosen_store(self._store), execute, options, decide) as view:
            return report_of(view, loaded)

    def _read(self, allowed: tuple[str, ...]) -> Suite:
        """Return the suite with what the call lays over it, and its functions.

        A file may import the `allowed` modules from anywhere.
        """
        suite, options = self._suite, self._load_options()
        baseline = name_chosen(self._chosen.get("baseline"), "baseline")
        if isinstance(suite, SuiteInFile):
            return suite.read(replace(options, allow_imports=allowed), baseline=baseline)
        changed = {} if baseline is None else {"baseline": baseline}
        return replace(suite.read(options, **changed), objects=suite.objects)

    def _load_options(self) -> LoadOptions:
        chosen = self._chosen
        iterations = _iterations(chosen.get("iterations"))
        return LoadOptions(
            iterations=None if iterations is None else iterations.most,
            auto_iterations=iterations is not None and iterations.auto,
            concurrency=_count(chosen.get("concurrency"), "concurrency"),
            cases=names_chosen(chosen.get("cases"), "cases"),
            tags=names_chosen(chosen.get("tags"), "tags"),
            excluded_tags=names_chosen(chosen.get("excluded_tags"), "excluded_tags"),
            variants=names_chosen(chosen.get("variants"), "variants"),
            baseline=name_chosen(chosen.get("baseline_run"), "baseline_run"),
            strict=chosen.get("strict", False),
            secrets_required=self._mode not in {Mode.REPLAY, Mode.AUTO},
            option_names=_OPTION_NAMES,
        ).configured(read_settings(os.environ, Path.cwd()), os.environ, _address(self._store))


def _check_store(store: object) -> None:
    """Raise `UsageError` for what is no store."""
    is_address = store is None or isinstance(store, str | os.PathLike)
    if not is_address and not isinstance(getattr(store, "url", None), str):
        raise UsageError(
            f"'store' is a folder, 's3://bucket/prefix' or an open store, not {repr(store)[:80]}"
        )


def _address(store: Store | None) -> str | None:
    if store is None or isinstance(store, str):
        return store
    return os.fspath(store) if isinstance(store, os.PathLike) else store.url


def _isolation(name: str | None, default: str) -> Isolation:
    if name is None:
        return Isolation(default)
    if name not in set(Isolation):
        raise UsageError(f"isolation is {' or '.join(Isolation)}, not {name!r}")
    return Isolation(name)


def _iterations(value: int | str | None) -> Iterations | None:
    if value is None:
        return None
    is_auto = isinstance(value, str) and value.startswith(AUTO)
    if not is_auto and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"iterations is {ITERATIONS_FORMS}, not {value!r}")
    try:
        return parse_iterations(value)
    except ValueError as error:
        raise UsageError(f"iterations: {error}") from None


def _count(value: int | None, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise UsageError(f"{name} is a whole number from 1 on, not {value!r}")


def report_of(view: RunView, suite: Suite) -> SuiteReport:
    """Return the report of a finished run."""
    report, definition = view.report, suite.definition
    summary, gates = report.summary, report.gates
    head = report_head(report)
    errored = summary.counts.error
    if definition.policy.iterations > 1 and errored:
        errored = sum(_in_error(case) for case in view.records())
    passed_gates = sum(gate.passed for gate in gates)
    counted = SuiteSummary(
        total_cases=summary.cases,
        passed_cases=summary.passed_cases,
        failed_cases=max(0, summary.cases - summary.passed_cases - errored),
        errored_cases=errored,
        pass_rate=summary.pass_rate,
        gates_passed=passed_gates,
        total_gates=len(gates),
        regressions=head["summary"]["regressions"],
        improvements=head["summary"]["improvements"],
    )
    variants = tuple(
        VariantResult(
            variant=variant.variant,
            cases=variant.cases,
            passed=variant.passed,
            pass_rate=variant.passed / variant.cases if variant.cases else 0.0,
            score=variant.score,
            is_baseline=variant.variant == definition.baseline,
        )
        for variant in summary.variants
    )
    return SuiteReport(
        suite=definition.name,
        run_id=view.run.run_id,
        decision=report.decision,
        passed=report.decision is Decision.PASS,
        score=summary.score,
        summary=counted,
        gate_results=gates,
        comparison=tuple(head["comparison"]),
        variant_summaries=variants,
        run=view.run,
    )


def _in_error(case: dict[str, Any]) -> bool:
    """Whether a case did not pass and one of its iterations is in error."""
    return not case["passed"] and any(item["status"] == "error" for item in case["items"])
