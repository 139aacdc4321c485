"""The tests of a configuration, with defaults, scenarios and lists of values applied."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from evalcore.conversion.converted import Notes
from evalcore.conversion.foreign_file import ForeignFile
from evalcore.conversion.foreign_shapes import PromptfooAssertion, PromptfooTest
from evalcore.conversion.promptfoo.csv_tests import test_of_row
from evalcore.conversion.promptfoo.files import (
    NotTakenOverError,
    is_reference,
    named_files,
    read_value,
)
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import describe

Test = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PositionedTest:
    """A test as it is written, and the positions of it and of its assertions in the files."""

    position: str
    test: Test
    assert_positions: tuple[str, ...]


_ELSEWHERE: Final = re.compile(r"^(?:https?|huggingface|az|s3|gs)://")
_MEDIA: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp3", ".wav", ".mp4", ".pdf", ".svg")


def read_tests(file: ForeignFile, raw: Mapping[str, Any], notes: Notes) -> Iterator[PositionedTest]:
    """Yield each test, its defaults in it; tests that programs or others make are noted."""
    folder = file.path.parent
    default = _positioned("defaultTest", _default_test(raw.get("defaultTest"), folder, notes))
    _check_test(file, default)
    written = raw.get("tests")
    if written is None and not raw.get("scenarios"):
        written = [{}]
    tests = [*_listed(written, "tests", folder, notes), *_scenarios(file, raw, notes)]
    for test in tests:
        _check_test(file, test)
        merged = _merged(default, test)
        try:
            variables = list(_combinations(_own_variables(merged.test.get("vars"), folder), folder))
        except NotTakenOverError as error:
            notes.add(f"the test is left out: {error}", merged.position)
            continue
        for each in variables:
            yield replace(merged, test={**merged.test, "vars": each})


def _positioned(position: str, test: Test) -> PositionedTest:
    listed = test.get("assert")
    count = len(listed) if isinstance(listed, list) else 0
    return PositionedTest(position, test, assert_positions(position, count))


def assert_positions(position: str, count: int) -> tuple[str, ...]:
    """Return the positions of the assertions that stand at a test or in a set."""
    return tuple(f"{position}.assert[{index}]" for index in range(count))


def _default_test(written: Any, folder: Path, notes: Notes) -> Test:
    try:
        if is_reference(written):
            written = read_value(next(iter(named_files(folder, written))))
    except NotTakenOverError as error:
        notes.add(f"defaultTest is left out: {error}")
        return {}
    return dict(written) if isinstance(written, Mapping) else {}


def _listed(written: Any, position: str, folder: Path, notes: Notes) -> Iterator[PositionedTest]:
    entries = written if isinstance(written, list) else [written] if written else []
    for index, entry in enumerate(entries):
        at = f"{position}[{index}]" if isinstance(written, list) else position
        is_file = isinstance(entry, Mapping) and "path" in entry and "vars" not in entry
        if isinstance(entry, Mapping) and not is_file:
            yield _positioned(at, dict(entry))
            continue
        try:
            yield from _of_files(entry["path"] if is_file else entry, at, folder)
        except NotTakenOverError as error:
            notes.add(f"the tests are left out: {error}", at)


def _of_files(entry: Any, position: str, folder: Path) -> Iterator[PositionedTest]:
    if not isinstance(entry, str):
        raise NotTakenOverError("they are neither a list nor a file")
    if _ELSEWHERE.match(entry):
        raise NotTakenOverError(f"{entry} is kept elsewhere; save it as a file")
    for path in named_files(folder, entry):
        value = read_value(path)
        rows = value if isinstance(value, list) else [value]
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                raise NotTakenOverError(f"{path.name} holds no tests")
            test = test_of_row(row) if path.suffix.lower() == ".csv" else dict(row)
            yield _positioned(f"{position} ({path.name}, {number})", test)


def _scenarios(file: ForeignFile, raw: Mapping[str, Any], notes: Notes) -> Iterator[PositionedTest]:
    folder = file.path.parent
    for index, scenario in enumerate(raw.get("scenarios") or ()):
        position = f"scenarios[{index}]"
        if not isinstance(scenario, Mapping):
            notes.add("the scenario is left out: it is kept in a file", position)
            continue
        configs = list(_listed(scenario.get("config"), f"{position}.config", folder, notes))
        tests = list(_listed(scenario.get("tests"), f"{position}.tests", folder, notes))
        for part in (*configs, *tests):
            _check_test(file, part)
        for config, test in itertools.product(configs, tests or [_positioned(position, {})]):
            yield _merged(config, test)


def _merged(defaults: PositionedTest, written: PositionedTest) -> PositionedTest:
    """Return a test over its defaults: assertions are added, mappings are laid over each other."""
    default, test = defaults.test, written.test
    merged = {**default, **test}
    for key in ("vars", "options", "metadata"):
        parts = [part for part in (default.get(key), test.get(key)) if part]
        if all(isinstance(part, Mapping) for part in parts):
            merged[key] = {name: value for part in parts for name, value in part.items()}
    asserts = [*(default.get("assert") or ()), *(test.get("assert") or ())]
    return PositionedTest(
        written.position,
        merged | ({"assert": asserts} if asserts else {}),
        defaults.assert_positions + written.assert_positions,
    )


def _own_variables(written: Any, folder: Path) -> dict[str, Any]:
    """Return the variables of a test; of a file, or of several, their contents together."""
    if written is None:
        return {}
    if isinstance(written, Mapping):
        return dict(written)
    variables: dict[str, Any] = {}
    for name in written if isinstance(written, list) else [written]:
        for path in named_files(folder, str(name)):
            value = read_value(path)
            if not isinstance(value, Mapping):
                raise NotTakenOverError(f"{path.name} holds no variables")
            variables.update(value)
    return variables


def _combinations(variables: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the variables once for each combination of lists of texts in them."""
    choices = [_choices(value, folder) for value in variables.values()]
    for values in itertools.product(*choices):
        yield dict(zip(variables, values, strict=True))


def _choices(value: Any, folder: Path) -> list[Any]:
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [each for member in value for each in _choices(member, folder)]
    if not is_reference(value):
        return [value.removesuffix("\n") if isinstance(value, str) else value]
    return [_content(path) for path in named_files(folder, value)]


def _content(path: Path) -> Any:
    if path.suffix.lower() in _MEDIA:
        raise NotTakenOverError(f"{path.name} is no text")
    value = read_value(path)
    if isinstance(value, str):
        return value.strip()
    if path.suffix.lower() in (".yaml", ".yml"):
        import orjson

        return orjson.dumps(value).decode()
    return path.read_text("utf-8").strip()


def _check_test(file: ForeignFile, written: PositionedTest) -> None:
    """Raise `LoadError` with the mistakes of a test, its assertions included."""
    test, position = written.test, written.position
    problems = Problems(file.name, lambda _: None)
    problems.check_shape(test, PromptfooTest, label=position)
    _check_assertions(test.get("assert"), position, problems)
    problems.raise_if_any()


def _check_assertions(listed: Any, position: str, problems: Problems) -> None:
    if listed is not None and not isinstance(listed, list):
        problems.add((), f"expected a list, got {describe(listed)}", label=f"{position}.assert")
        return
    for index, raw in enumerate(listed or ()):
        at = f"{position}.assert[{index}]"
        if problems.check_shape(raw, PromptfooAssertion, label=at):
            _check_assertions(raw.get("assert"), at, problems)
