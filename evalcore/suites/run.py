"""`run_suite`: a suite through the pipeline; the report as Python values."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final, NoReturn, TypeVar, Unpack

from pydantic import Strict, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.errors import EvalError, LoadError, NoCaseLeftError, Problem, UsageError
from evalcore.execution.stopper import Stopper
from evalcore.formats.options import LoadOptions, check_file_name
from evalcore.formats.registry import load_suite
from evalcore.isolation.mode import Isolation
from evalcore.model.iterations import parse_iterations
from evalcore.model.mode import Mode
from evalcore.model.run import Decision
from evalcore.model.suite import Format, Suite
from evalcore.pipeline.finish import RunView, evaluate
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.plan import PlanOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.redaction.redactor import cover_exception
from evalcore.report.document import report_head
from evalcore.settings import Settings, read_settings
from evalcore.shapes import (
    STRICT,
    Count,
    Listed,
    Repetitions,
    Text,
    adapter,
    explain,
    parameter_mistake,
    written_as,
)
from evalcore.storage.address import open_store
from evalcore.storage.store import ObjectStore
from evalcore.suites.define import EvalSuite, with_importable_names
from evalcore.suites.report import SuiteReport, SuiteSummary, VariantResult
from evalcore.trust.imports import ImportPolicy, root_modules, text_of_error
from evalcore.wording import missing_file

SUFFIX: Final = ".py"
_SUITES: Final = "suites"


def load_module_suites(
    path: Path, options: LoadOptions, imports: ImportPolicy, *, portable: bool = False
) -> list[Suite]:
    """Import a Python file and return the suites in it, in the order of their definition.

    These are the values of `define_suite` under its public names, and those that its list or
    function `suites` has. With `portable` each function of a suite has to be importable by other
    processes. Raises `LoadError` with the file's line for each mistake.
    """
    file = str(path)
    check_file_name(path, file)
    if options.format not in {None, Format.SUITE}:
        raise _failure(
            file, None, f"a Python file has suites of the format suite, not {options.format}"
        )
    name, root = _module_name(path)
    # Its own folder comes first: that is where its imports are.
    roots = tuple(dict.fromkeys([root, *(folder.resolve() for folder in imports.roots)]))
    module = _imported(path, name, root, roots)
    defined = _defined(module, file)
    if not defined:
        raise _failure(
            file, None, "has no suite: write `suite = define_suite(…)`, or a function `suites()`"
        )
    suites: list[Suite] = []
    problems: list[Problem] = []
    without_cases: list[NoCaseLeftError] = []
    for local in defined:
        suite = with_importable_names(local, module, name, imports)
        if portable and suite.objects:
            problems.append(Problem(file, suite.line, "", _local_reason(suite)))
            continue
        try:
            suites.append(replace(suite.read(options), objects=suite.objects))
        except LoadError as error:
            problems.extend(_placed(error.problems, file, suite.line))
        except NoCaseLeftError as error:
            without_cases.append(error)
    if problems:
        raise LoadError(tuple(problems))
    if without_cases and (options.strict or not suites):
        raise NoCaseLeftError(
            file, [line for each in without_cases for line in str(each).splitlines()]
        )
    if without_cases:
        warnings = tuple(f"{error.suite}: {error.warning}" for error in without_cases)
        suites[0] = replace(suites[0], warnings=(*warnings, *suites[0].warnings))
    return suites


def _local_reason(suite: EvalSuite) -> str:
    names = ", ".join(reference.partition(":")[2] for reference in suite.objects)
    return (
        f"suite '{suite.name}': other processes cannot import {names}; define what they call at "
        "the top level of a module, or run without --prefect and --workers"
    )


def _module_name(path: Path) -> tuple[str, Path]:
    """Return a file's module name and the folder that its outermost package stands in."""
    resolved = path.resolve()
    if not resolved.is_file():
        raise _failure(str(path), None, "no such file")
    root = resolved.parent
    while (root / "__init__.py").is_file() and root != root.parent:
        root = root.parent
    parts = resolved.relative_to(root).with_suffix("").parts
    if not all(part.isidentifier() for part in parts):
        proposal = f"{''.join(c if c.isalnum() else '_' for c in path.stem)}{SUFFIX}"
        raise _failure(
            str(path),
            None,
            f"a Python suite's file has the name of a module; rename it, for example to {proposal}",
        )
    if parts[0] in sys.stdlib_module_names:
        message = f"Python's standard library has a module {parts[0]}; rename the file"
        raise _failure(str(path), None, message)
    return ".".join(parts), root


def _imported(path: Path, name: str, root: Path, roots: Sequence[Path]) -> ModuleType:
    try:
        return root_modules().load(name, root, roots)
    except KeyboardInterrupt:
        raise
    # The module is foreign code, and `sys.exit()` in it must not end the command as if it passed.
    except BaseException as error:  # noqa: BLE001
        _explain(error, path)


def _explain(error: BaseException, path: Path) -> NoReturn:
    """Raise `LoadError` with the line of the file at which the import failed."""
    file, line = str(path), _line_in(error, path)
    if isinstance(error, LoadError):
        raise LoadError(_placed(error.problems, file, line)) from error
    if isinstance(error, SystemExit):
        message = (
            "ends the process when it is imported; put that below `if __name__ == '__main__':`"
        )
        raise _failure(file, line, message) from error
    what = str(error) if isinstance(error, EvalError) else text_of_error(error)
    raise _failure(file, line, f"importing it failed: {what}") from error


def _line_in(error: BaseException, path: Path) -> int | None:
    """Return the innermost line of the file that an exception went through."""
    resolved = path.resolve()
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename) == resolved:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == resolved]
    return lines[-1] if lines else None


def _placed(problems: Sequence[Problem], file: str, line: int | None) -> tuple[Problem, ...]:
    """Return the mistakes, those of the suite itself at the line that defines it."""
    return tuple(
        problem._replace(file=file, line=line)
        if problem.line is None and problem.file.startswith("suite")
        else problem
        for problem in problems
    )


def _failure(file: str, line: int | None, message: str) -> LoadError:
    return LoadError((Problem(file, line, "", message),))


def _defined(module: ModuleType, file: str) -> list[EvalSuite]:
    """Return the suites that a module has, each once."""
    suites: dict[int, EvalSuite] = {}
    for name, value in vars(module).items():
        if name == _SUITES:
            suites |= {id(suite): suite for suite in _listed(value, file)}
        elif isinstance(value, EvalSuite) and not name.startswith("_"):
            suites[id(value)] = value
    return list(suites.values())


def _listed(value: Any, file: str) -> list[EvalSuite]:
    """Return the suites of `suites`: a suite, a list of them, or a function that returns either."""
    try:
        listed = value() if callable(value) else value
        members = [listed] if isinstance(listed, EvalSuite) else list(listed)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the suite's own function
        _explain(error, Path(file))
    for member in members:
        if not isinstance(member, EvalSuite):
            kind = type(member).__name__
            raise _failure(file, None, f"`suites` has {kind} where a suite is expected")
    return members


def read_suite_file(path: Path, options: LoadOptions) -> Suite:
    """Return the suite in a file of any format; a Python file has to have one suite.

    Raises `LoadError` with every mistake in the file, `UsageError` for a Python file of several
    suites.
    """
    name = str(path)
    if not path.exists():
        raise _failure(name, None, missing_file(path))
    # A notebook runs a file again after a change.
    root_modules().forget_changed()
    if path.suffix != SUFFIX:
        return load_suite(path, options)
    roots = (path.resolve().parent, Path.cwd())
    suites = load_module_suites(path, options, ImportPolicy(roots, options.allow_imports or ()))
    if len(suites) > 1:
        names = ", ".join(suite.definition.name for suite in suites)
        raise UsageError(f"{name} has {len(suites)} suites ({names}): import the one to run")
    return suites[0]


MODE = Annotated[Mode, Strict(strict=False)]
NAMES = Annotated[Iterable[str], written_as(Listed[Text])]
Store = ObjectStore | str | os.PathLike[str]
T = TypeVar("T")
_OPTION_NAMES: Final = {
    "--baseline": "baseline_run",
    "--case": "cases",
    "--exclude-tag": "excluded_tags",
    "--tag": "tags",
    "--variant": "variants",
}


@with_config(STRICT)
class RunChoices(TypedDict, total=False):
    """What a call lays over a suite.

    `variants`, `cases`, `tags` and `excluded_tags` leave only those; `baseline` is another variant;
    `baseline_run` an earlier run's id, or a named baseline. `iterations` is a number, `auto` or
    `auto:MAX`. `allow_imports` are modules that the
    suite may name from anywhere. `isolation` is `inline` or `process`, for functions that the suite
    names as `module:function`; the default is `inline` for a suite of `define_suite`, and what the
    configuration says (`process`) for a file.
    """

    variants: NAMES
    cases: NAMES
    tags: NAMES
    excluded_tags: NAMES
    baseline: Text
    baseline_run: Text
    iterations: Annotated[int | str, written_as(Repetitions)]
    concurrency: Count
    strict: bool
    allow_imports: NAMES
    isolation: Annotated[str, written_as(Annotated[Isolation, Strict(strict=False)])]


@with_config(STRICT)
class _Checked(RunChoices, total=False):
    """The choices of a run with its mode."""

    mode: MODE


def check_arguments(shape: Any, given: Mapping[str, Any], call: str) -> Any:
    """Return the arguments of a call as `shape` has them; raise `UsageError` with all mistakes."""
    try:
        return adapter(shape).validate_python(given)
    except ValidationError as error:
        mistakes = (parameter_mistake(*each) for each in explain(error, given, shape))
        raise UsageError(f"{call}: {'; '.join(mistakes)}") from None


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
    return off_the_loop(partial(_report, suite, mode, store, chosen, Stopper()))


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
    try:
        return await asyncio.to_thread(_report, suite, mode, store, chosen, stopper)
    except asyncio.CancelledError:
        stopper.stop()
        raise


def off_the_loop(call: Callable[[], T]) -> T:
    """Return what `call` does; in a thread of its own if this one has a running event loop."""
    with ThreadPoolExecutor(1, "evalcore-run") as pool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            run = call
        else:
            run = pool.submit(call).result
        return run()  # what it raises has no part in the question


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


def _report(
    suite: EvalSuite | str | os.PathLike[str],
    mode: str,
    store: Store | None,
    chosen: RunChoices,
    stopper: Stopper,
) -> SuiteReport:
    """Run the suite and return its report; what is raised holds no secret."""
    is_path = isinstance(suite, str | os.PathLike) and bool(suite)
    if not isinstance(suite, EvalSuite) and not is_path:
        raise UsageError(
            "run_suite() takes what define_suite() returns, or the path of a suite file, not "
            f"{repr(suite)[:80]}"
        )
    is_address = store is None or isinstance(store, str | os.PathLike)
    if not is_address and not isinstance(getattr(store, "url", None), str):
        raise UsageError(
            f"'store' is a folder, 's3://bucket/prefix' or an open store, not {repr(store)[:80]}"
        )
    named = {key: value for key, value in chosen.items() if value is not None}
    choices = check_arguments(_Checked, {"mode": mode, **named}, "run_suite()")
    try:
        configured = read_settings(os.environ, Path.cwd())
        allowed = choices.get("allow_imports", ())
        options = _load_options(store, choices, configured)
        loaded = _read(suite, options, choices, (*configured.allow_imports, *allowed))
        imports = import_policy(loaded.definition.source.folder, allowed)
        default = Isolation.INLINE if isinstance(suite, EvalSuite) else configured.isolation
        execute = ExecuteOptions(
            imports=imports,
            concurrency=choices.get("concurrency"),
            stopper=stopper,
            settings=configured,
            objects=loaded.objects,
            isolation=Isolation(choices.get("isolation", default)),
        )
        decide = DecideOptions(imports, loaded.objects, execute.isolation)
        plan = PlanOptions(mode=choices["mode"])
        with evaluate(loaded, chosen_store(store), execute, plan, decide) as view:
            return report_of(view, loaded)
    except BaseException as error:  # goes on to the caller without its secrets
        cover_exception(error)
        raise


def _read(
    suite: EvalSuite | str | os.PathLike[str],
    options: LoadOptions,
    choices: _Checked,
    allowed: tuple[str, ...],
) -> Suite:
    """Return the suite with what the call lays over it, and its functions.

    A file may import the `allowed` modules from anywhere.
    """
    baseline = choices.get("baseline")
    if isinstance(suite, EvalSuite):
        changed = {} if baseline is None else {"baseline": baseline}
        return replace(suite.read(options, **changed), objects=suite.objects)
    options = replace(options, allow_imports=allowed)
    if baseline is not None:
        options = replace(options, baseline=baseline)
    return read_suite_file(Path(suite), options)


def _load_options(store: Store | None, choices: _Checked, configured: Settings) -> LoadOptions:
    written = choices.get("iterations")
    iterations = None if written is None else parse_iterations(written)
    return LoadOptions(
        iterations=None if iterations is None else iterations.most,
        auto_iterations=iterations is not None and iterations.auto,
        concurrency=choices.get("concurrency"),
        baseline=choices.get("baseline_run"),
        strict=choices.get("strict", False),
        secrets_required=choices["mode"] not in {Mode.REPLAY, Mode.AUTO},
        option_names=_OPTION_NAMES,
        cases=frozenset(choices.get("cases", ())),
        tags=frozenset(choices.get("tags", ())),
        excluded_tags=frozenset(choices.get("excluded_tags", ())),
        variants=frozenset(choices.get("variants", ())),
    ).configured(configured, os.environ, _address(store))


def _address(store: Store | None) -> str | None:
    if store is None or isinstance(store, str):
        return store
    return os.fspath(store) if isinstance(store, os.PathLike) else store.url


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
