"""The cases of a suite: inline, or in files as test files have them (spec/suite-api.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalcore.formats.assertions.graders import Graders
from evalcore.formats.parts.interpolation import Variables, interpolate
from evalcore.formats.parts.raw_test import RawTest
from evalcore.formats.parts.test_sources import listed_tests, named_tests
from evalcore.formats.suite_file.assertions import SuiteAssertions
from evalcore.formats.suite_file.shapes import SuiteCase
from evalcore.formats.text.camel_case import Renames
from evalcore.formats.text.documents import as_json
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import adapter
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.targets.flow_answer import (
    AnswerError,
    answer_evidence,
    block_evidence,
    is_whole_evidence,
    with_primary,
)

MAX_WARNINGS = 20
_KEYS = ("expected_output",)


class CaseReader:
    """Turns raw cases into cases; notes everything that is wrong in them."""

    def __init__(
        self,
        graders: Graders,
        renames: Renames,
        variables: Variables,
        *,
        primary_output: str | None,
        blocks: frozenset[str],
        strict: bool,
        verbatim: bool = False,
    ) -> None:
        """Take the blocks of the workflow that the suite runs (none if it runs another flow).

        `verbatim` leaves `${{ … }}` as it is. `executes` says whether a case that was read has no
        answer of its own.
        """
        self._blocks = blocks
        self.executes = False
        self._verbatim = verbatim
        self.assertions = SuiteAssertions(graders, renames)
        self.ids: set[str] = set()
        self._renames, self._variables = renames, variables
        self._primary_output, self._strict = primary_output, strict
        self._first: dict[str, tuple[Problems, Loc]] = {}
        self._warnings: list[str] = []
        self._warned = 0

    @property
    def warnings(self) -> list[str]:
        """What people should know: cases that assert nothing, paths that find nothing."""
        more = self._warned - len(self._warnings)
        tail = [f"and {more} more cases that assert nothing"] if more else []
        return [*self._warnings, *tail, *self.assertions.warnings]

    def read(self, value: Any, loc: Loc, problems: Problems, *, marked: bool = True) -> Case | None:
        """Return the case at `loc`, or note every mistake in it and return None."""
        before = problems.count
        if marked and not self._verbatim:
            value = interpolate(value, self._variables, loc, problems)
        raw = self._renames.read(value, _KEYS, loc)
        try:
            adapter(SuiteCase).validate_python(raw)
        except ValidationError as error:
            problems.add_invalid(error, raw, SuiteCase, loc)
        if not isinstance(raw, Mapping):
            return None
        self._note_id(raw.get("id"), loc, problems)
        assertions = self._assertions(raw, loc, problems)
        fixture = self._fixture(raw.get("fixtures"), (*loc, "fixtures"), problems)
        if problems.count > before:
            return None
        case = _case(raw, assertions, fixture)
        if fixture is not None and self._expected(assertions) - fixture.outputs.keys():
            # As in a workflow file: the blocks that are given yield that, the others run.
            case = case._replace(fixture=None, given=fixture)
        self.executes = self.executes or case.fixture is None
        return case

    def _expected(self, assertions: Sequence[Assertion]) -> set[str]:
        """Return the blocks of the workflow that the assertions look at."""
        paths = [one.params.get("path") or "" for one in assertions]
        named = {path.partition(".")[2].partition(".")[0].partition("[")[0] for path in paths}
        nodes = {one.params["node_id"] for one in assertions if "node_id" in one.params}
        return (named | nodes) & self._blocks

    def _note_id(self, case_id: object, loc: Loc, problems: Problems) -> None:
        if not isinstance(case_id, str) or not case_id:
            return
        self.ids.add(case_id)
        if case_id in self._first:
            found, place = self._first[case_id]
            line = place[0] if found.cheap else found.locate(place)
            here = "" if found is problems else f" of {found.file}"
            where = "" if line is None else f" (first at line {line}{here})"
            problems.add((*loc, "id"), f"duplicate case id: {case_id}{where}")
            return
        line_of_now = problems.locate(loc) if problems.cheap else None
        self._first[case_id] = (problems, (line_of_now or 0,) if problems.cheap else loc)

    def _assertions(
        self, raw: Mapping[str, Any], loc: Loc, problems: Problems
    ) -> tuple[Assertion, ...]:
        listed = raw.get("assertions") or ()
        if not isinstance(listed, list | tuple):
            return ()
        if not listed:
            text = f"Case '{raw.get('id')}' has no 'assertions': it asserts nothing"
            if self._strict:
                problems.add(loc, text)
            self._warned += 1
            if self._warned <= MAX_WARNINGS:
                self._warnings.append(text)
        read = self.assertions.read
        warned = len(self.assertions.warnings)
        found = [read(one, (*loc, "assertions", i), problems) for i, one in enumerate(listed)]
        if self._strict and len(self.assertions.warnings) > warned:
            for text in self.assertions.warnings[warned:]:
                problems.add((*loc, "assertions"), text)
        return tuple(one for one in found if one is not None)

    def _fixture(self, given: object, loc: Loc, problems: Problems) -> Evidence | None:
        if not isinstance(given, Mapping) or not given:
            return None
        try:
            if is_whole_evidence(given):
                evidence = answer_evidence(given)
            elif set(given) == {"output"}:
                return answer_evidence(given["output"])
            else:
                evidence = block_evidence(as_json(given))
            primary = self._primary_output
            return evidence if primary is None else with_primary(evidence, primary)
        except AnswerError as error:
            problems.add(loc, str(error))
        except TypeError as error:
            problems.add(loc, f"holds what JSON cannot: {error}")
        return None


def _case(
    raw: Mapping[str, Any], assertions: tuple[Assertion, ...], fixture: Evidence | None
) -> Case:
    return Case(
        id=raw["id"],
        input=raw.get("input"),
        assertions=assertions,
        fixture=fixture,
        expected_output=raw.get("expected_output"),
        criteria=raw.get("criteria"),
        tags=tuple(raw.get("tags", ())),
        metadata=raw.get("metadata") or {},
    )


def raw_cases(
    cases: Any,
    folder: Path,
    columns: Mapping[str, str],
    problems: Problems,
    datasets: Sequence[str] = (),
) -> Iterator[RawTest]:
    """Yield the raw cases of whatever `cases` is: a list, a path or address, a list of those.

    Addresses have to lie below one of `datasets`.
    """
    loc: Loc = ("cases",)
    if cases is None:
        problems.add(loc, "is required: a list of cases, or the path of one")
        return iter(())
    if isinstance(cases, str):
        return named_tests([cases], loc, folder, columns, problems, datasets)
    if isinstance(cases, list) and cases and all(isinstance(item, str) for item in cases):
        return named_tests(cases, loc, folder, columns, problems, datasets)
    if isinstance(cases, list):
        if not cases:
            problems.add(loc, "holds no case")
        return listed_tests(cases, loc, problems)
    problems.add(loc, "expected a list of cases, a path, or a list of paths")
    return iter(())
