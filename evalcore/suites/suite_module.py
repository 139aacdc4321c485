"""The suites of a Python file, as `evalcore run suite.py` runs them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from evalcore.errors import EvalError, LoadError, NoCaseLeftError, Problem
from evalcore.formats.options import LoadOptions, check_file_name
from evalcore.model.suite import Format, Suite
from evalcore.suites.define import EvalSuite
from evalcore.suites.importable_names import with_importable_names
from evalcore.trust.imports import ImportPolicy, root_modules, text_of_error

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
    suites: list[EvalSuite] = []
    for suite in _named(module, file):
        if all(suite is not other for other in suites):
            suites.append(suite)
    return suites


def _named(module: ModuleType, file: str) -> Iterator[EvalSuite]:
    for name, value in vars(module).items():
        if name == _SUITES:
            yield from _listed(value, file)
        elif isinstance(value, EvalSuite) and not name.startswith("_"):
            yield value


def _listed(value: Any, file: str) -> Iterator[EvalSuite]:
    """Yield the suites of `suites`: a suite, a list of them, or a function that returns either."""
    try:
        listed = value() if callable(value) else value
        if isinstance(listed, EvalSuite):
            listed = [listed]
        members = list(listed) if isinstance(listed, Iterable) else None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - the suite's own function
        _explain(error, Path(file))
    if members is None:
        returned = "returned" if callable(value) else "is"
        kind = type(listed).__name__
        message = f"`suites` {returned} {kind}; expected a suite, or a list of suites"
        if isinstance(listed, Coroutine):
            listed.close()
        raise _failure(file, None, message)
    for member in members:
        if not isinstance(member, EvalSuite):
            kind = type(member).__name__
            raise _failure(file, None, f"`suites` has {kind} where a suite is expected")
        yield member
