"""What rows of data may not hold: JSONL, tables and datasets are cases, and add nothing that runs.

A row may name what its suite declares: a target, a workspace file, a plug-in (docs/decisions/0036).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from evalcore.mistakes.locations import Loc

_LISTS: Final = ("assertions", "assert", "evaluators")
_NESTED: Final = (*_LISTS, "aggregator", "prompt", "grader")
_RUNS: Final = ("command", "script", "callable", "preprocessors")
_PROGRAMS: Final = frozenset({"code-grader", "code-judge", "python"})
_PLUGIN: Final = "custom:"
_WORKSPACE: Final = ("hooks", "repos", "scripts", "command")
# Most rows have nothing else: texts that are compared.
COMPARED: Final = frozenset(
    {"contains", "icontains", "equals", "regex", "starts-with", "ends-with", "is-json", "latency"}
)
_TEXT_KEYS: Final = frozenset(
    {"assertions", "criteria", "expected_output", "fixtures", "id", "input", "metadata", "tags"}
)
_INSTEAD: Final = (
    "a row of data adds nothing that runs; declare it in the suite file or, for a file of rows, in "
    "the defaults file beside it (`assertions:`)"
)


class RowRules(NamedTuple):
    """What rows of a suite may name: types of assertions that the suite has `declared`.

    `programs` are types that run a program.
    """

    declared: Collection[str] = ()
    programs: Collection[str] = ()


NOTHING_DECLARED: Final = RowRules()


def forbidden_parts(test: Any, rules: RowRules = NOTHING_DECLARED) -> Iterator[tuple[Loc, str]]:
    """Yield what a row holds that only a suite file may, each with its path and a message."""
    if not isinstance(test, dict) or _is_plain(test):
        return
    yield from _of_lists(test, (), rules)
    turns = test.get("turns")
    for number, turn in enumerate(turns if isinstance(turns, list) else ()):
        yield from _of_lists(turn, ("turns", number), rules)
    execution = test.get("execution")
    if execution is not None:
        yield from _of_execution(execution, rules)
    for key in ("target", "targets", "flow", "hooks"):
        if isinstance(test.get(key), dict) or (key == "hooks" and test.get(key)):
            yield (key,), f"a {key.rstrip('s')} cannot be defined here: {_INSTEAD}"
    workspace = test.get("workspace")
    if isinstance(workspace, dict):
        for key in _WORKSPACE:
            if workspace.get(key):
                yield ("workspace", key), f"'{key}' runs commands: {_INSTEAD}"


def _is_plain(test: Mapping[str, Any]) -> bool:
    """Whether a row has texts that are compared, and nothing in which something else may stand."""
    assertions = test.get("assertions")
    if not test.keys() <= _TEXT_KEYS or type(assertions) is not list:
        return False
    for assertion in assertions:  # twice as quick as `all` with a generator
        if type(assertion) is not dict or not _is_compared(assertion):
            return False
    return True


def _of_lists(part: Any, loc: Loc, rules: RowRules) -> Iterator[tuple[Loc, str]]:
    for key in _LISTS if isinstance(part, dict) else ():
        yield from _of_list(part.get(key), (*loc, key), rules)


def _of_execution(execution: Any, rules: RowRules) -> Iterator[tuple[Loc, str]]:
    if not isinstance(execution, dict):
        return
    yield from _of_lists(execution, ("execution",), rules)
    if isinstance(execution.get("target"), dict):
        message = f"a target cannot be defined here, only named: {_INSTEAD}"
        yield ("execution", "target"), message


def _of_list(assertions: Any, loc: Loc, rules: RowRules) -> Iterator[tuple[Loc, str]]:
    if not isinstance(assertions, list):
        return
    for number, assertion in enumerate(assertions):
        if not isinstance(assertion, dict) or _is_compared(assertion):
            continue
        yield from _of_assertion(assertion, (*loc, number), rules)


def _is_compared(assertion: Mapping[str, Any]) -> bool:
    written = assertion.get("type")
    return isinstance(written, str) and written in COMPARED


def _of_assertion(
    assertion: Mapping[str, Any], loc: Loc, rules: RowRules
) -> Iterator[tuple[Loc, str]]:
    if "include" in assertion:
        yield (*loc, "include"), f"a template may hold what runs programs: {_INSTEAD}"
        return
    written = assertion.get("type")
    kind = written.replace("_", "-").lower() if isinstance(written, str) else ""
    bare = kind.removeprefix("not-")
    is_plugin = bare.startswith(_PLUGIN) or (kind and written in rules.programs)
    if bare in _PROGRAMS or (is_plugin and written not in rules.declared):
        yield (*loc, "type"), f"'{written}' runs a program: {_INSTEAD}"
        return
    for key in _RUNS:
        if assertion.get(key):
            yield (*loc, key), f"'{key}' runs a program: {_INSTEAD}"
    for key in _NESTED:
        inner = assertion.get(key)
        if isinstance(inner, list):
            yield from _of_list(inner, (*loc, key), rules)
        elif isinstance(inner, dict):
            yield from _of_assertion(inner, (*loc, key), rules)


def declared_types(suite: Any) -> frozenset[str]:
    """Return the types of the assertions that a suite file declares for all of its cases."""
    if not isinstance(suite, Mapping):
        return frozenset()
    listed = [suite.get(key) for key in _LISTS]
    return frozenset(
        entry["type"]
        for assertions in listed
        if isinstance(assertions, list)
        for entry in assertions
        if isinstance(entry, Mapping) and isinstance(entry.get("type"), str)
    )
