"""Load every suite that a command names; if one does not load, none is used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from evalcore.cli.options import chosen_store
from evalcore.cli.output import reserved_stdout, warn
from evalcore.errors import EvalError, LoadError, NoCaseLeftError, Problem, UsageError
from evalcore.formats.includes import ScriptDocument, find_script, read_script_document
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import is_script, load_suite
from evalcore.model.suite import QUARANTINE_FILE, Format, Suite, SuiteDefinition
from evalcore.pipeline.compare import settle_baseline
from evalcore.trust.imports import ImportPolicy
from evalcore.wording import Loc, missing_file, path_text

if TYPE_CHECKING:
    pass


PYTHON_SUFFIX: Final = ".py"
_MODULE: Final = re.compile(r"[^\W\d][\w.]+:.+\.ya?ml")


def check_baseline(definition: SuiteDefinition) -> None:
    """Raise `UsageError` if the caller's baseline is neither a variant nor in the store."""
    if definition.baseline_run is not None:
        settle_baseline(chosen_store(None), definition)


class Named(NamedTuple):
    """A suite file as the command names it; its script, and its document if that was read."""

    path: str
    script: str | None = None
    opened: ScriptDocument | None = None


def with_scripts(paths: Sequence[str]) -> Iterator[Named]:
    """Yield the suites that a command names; a YAML file that is none belongs to the next one.

    A `quarantine.yaml` among several files, as a shell's `*.yaml` names it, is left out.
    """
    if len(paths) > 1:
        paths = [path for path in paths if Path(path).name != QUARANTINE_FILE]
    script: str | None = None
    for index, path in enumerate(paths):
        opened = None
        if index < len(paths) - 1 and script is None:
            if _MODULE.fullmatch(path) and not Path(path).exists():
                script = path
                continue
            if path.lower().endswith((".yaml", ".yml")):
                with suppress(LoadError):  # told when it is loaded
                    opened = read_script_document(Path(path), path)
            if opened is not None and is_script(opened.document):
                script = path
                continue
        yield Named(path, script, opened)
        script = None


def load_named(
    named: Named, options: LoadOptions, allow_imports: Sequence[str] = (), *, portable: bool = False
) -> list[Suite]:
    """Return the suites of a file: one, or those of a Python file, which is imported.

    With `portable` other processes have to be able to import each function of a suite.
    """
    path = Path(named.path)
    if not path.exists():
        raise LoadError((Problem(named.path, None, "", missing_file(path)),))
    if path.suffix != PYTHON_SUFFIX:
        return [load_suite(path, options, script=named.script, opened=named.opened)]
    if named.script is not None:
        message = f"is a suite in Python, and no script belongs to one ({named.script})"
        raise LoadError((Problem(named.path, None, "", message),))
    from evalcore.suites.run import load_module_suites

    imports = ImportPolicy((path.resolve().parent, Path.cwd()), tuple(allow_imports))
    with reserved_stdout():
        return load_module_suites(path, options, imports, portable=portable)


def load_suites(
    paths: Sequence[str],
    options: LoadOptions,
    allow_imports: Sequence[str] = (),
    *,
    portable: bool = False,
) -> list[Suite]:
    """Return the suites; raise one `LoadError` with the mistakes of all of them.

    A suite of which the filters leave no case is left out, with a warning, if others remain.
    """
    if not paths:
        raise UsageError("name at least one suite file: evalcore run SUITE… (--help shows more)")
    suites: list[Suite] = []
    problems: list[Problem] = []
    without_cases: list[NoCaseLeftError] = []
    for named in with_scripts(paths):
        try:
            suites.extend(load_named(named, options, allow_imports, portable=portable))
        except LoadError as error:
            problems.extend(error.problems)
        except NoCaseLeftError as error:
            without_cases.append(error)
    if problems:
        raise LoadError(tuple(problems))
    if without_cases and (options.strict or not suites):
        raise UsageError("\n".join(map(str, without_cases)))
    _refuse_idle_script(None if without_cases else options.script, suites)
    for left_out in without_cases:
        warn(f"{left_out.suite}: {left_out.warning}")
    for suite in suites:
        for warning in suite.warnings:
            warn(f"{suite.definition.source.path}: {warning}")
    return suites


def _refuse_idle_script(script: str | None, suites: Iterable[Suite]) -> None:
    """Raise `UsageError` for a script that belongs to none of the suites."""
    if script is not None and all(
        suite.definition.format is not Format.SCRIPT_SUITE for suite in suites
    ):
        raise UsageError(f"--script {script}: none of the files is a script suite")


def problem_at(file: str, loc: Loc, message: str) -> Problem:
    """Return a mistake with its line, for which the file is read once more."""
    name, line = file, None
    with suppress(EvalError):
        name, line = read_script_document(find_script(file), file).locate(loc)
    return Problem(name, line, path_text(loc), message)


def tool_references(suite: Suite) -> Iterator[tuple[str, str, Loc]]:
    """Yield the Python that tools of a script suite name, each with its file and place."""
    if suite.definition.format is Format.SCRIPT_SUITE:
        target = next(iter(suite.definition.targets.values()))
        for reference, file, loc in target.options["imports"]:
            yield reference, file, tuple(loc)


def check_imports(suites: Sequence[Suite], policy: ImportPolicy) -> None:
    """Import the Python that tools of script suites name; raise `LoadError` with what cannot be.

    A tool that is not to be had would score every test 0, and look like a bad result.
    """
    problems: list[Problem] = []
    for suite in suites:
        for reference, file, loc in tool_references(suite):
            try:
                policy.load(reference)
            except EvalError as error:
                problems.append(problem_at(file, loc, str(error)))
    if problems:
        raise LoadError(tuple(problems))
