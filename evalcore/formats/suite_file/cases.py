"""The cases of a suite: inline, or in files as test files have them (docs/reference/suites.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from evalcore.formats.documents import Renames, as_json
from evalcore.formats.faults import note_weightless
from evalcore.formats.graders import Graders
from evalcore.formats.section import UniqueIds
from evalcore.formats.suite_file.assertions import SuiteAssertions
from evalcore.formats.suite_file.shapes import SuiteCase
from evalcore.formats.test_file.input_messages import InputOrigin, read_named_texts
from evalcore.formats.variables import Variables, interpolate
from evalcore.formats.warnings import CaseWarnings
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.targets.answers import (
    AnswerError,
    answer_evidence,
    block_evidence,
    is_whole_evidence,
    with_primary,
)

_KEYS = ("expected_output",)
_NO_ASSERTIONS = "{count} cases ({names}) have no 'assertions': they assert nothing"


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

        `verbatim` leaves `${{ … }}` as it is. `executes` says whether a case so far has no output
        of its own.
        """
        self._blocks = blocks
        self.executes = False
        self.inputs: set[str] = set()
        self._verbatim = verbatim
        self._warnings = CaseWarnings(strict=strict)
        self.assertions = SuiteAssertions(graders, renames, self._warnings)
        self.ids = UniqueIds("duplicate case id: {}")
        self._renames, self._variables = renames, variables
        self._folder = graders.folder
        self._primary_output, self._strict = primary_output, strict
        self._of_suite: tuple[Assertion, ...] = ()

    def read_suite_assertions(self, listed: object, problems: Problems) -> None:
        """Take the suite's own assertions, which every case has after its own."""
        if isinstance(listed, list | tuple):
            self._of_suite = self._read_all(listed, ("assertions",), problems)

    @property
    def warnings(self) -> list[str]:
        """Warnings of cases and assertions that decide nothing, of paths that lead nowhere."""
        return [*self._warnings.texts, *self.assertions.warnings]

    def read(self, value: Any, loc: Loc, problems: Problems, *, marked: bool = True) -> Case | None:
        """Return the case at `loc`, or note every mistake in it and return None."""
        before = problems.count
        if marked and not self._verbatim:
            value = interpolate(value, self._variables, loc, problems)
            value = read_named_texts(value, InputOrigin(self._folder, loc, problems))
        raw: Any = self._renames.read(value, _KEYS, loc)
        problems.check_shape(raw, SuiteCase, loc)
        if not isinstance(raw, dict):
            return None
        raw = cast("SuiteCase", raw)
        self.ids.note(raw.get("id"), loc, problems)
        self._warnings.add_replaced(f"'{raw.get('id')}'", loc, problems)
        assertions = self._assertions(raw, loc, problems)
        fixture = self._fixture(raw.get("fixtures"), (*loc, "fixtures"), problems)
        if problems.count > before:
            return None
        case = _case(raw, assertions, fixture)
        if fixture is not None and self._expected(assertions) - fixture.outputs.keys():
            # As in a workflow file: the blocks that are given yield that, the others run.
            case = case._replace(fixture=None, block_fixtures=fixture)
        self.executes = self.executes or case.fixture is None
        if self._blocks:
            from evalcore.targets.workflow import inputs_of

            self.inputs.update(inputs_of(case.input))
        return case

    def _expected(self, assertions: Sequence[Assertion]) -> set[str]:
        """Return the blocks of the workflow that the assertions look at."""
        parameters = [assertion.params for assertion in assertions]
        paths = [params.get("path") or "" for params in parameters]
        named = {path.partition(".")[2].partition(".")[0].partition("[")[0] for path in paths}
        nodes = {params["node_id"] for params in parameters if "node_id" in params}
        return (named | nodes) & self._blocks

    def _assertions(self, raw: SuiteCase, loc: Loc, problems: Problems) -> tuple[Assertion, ...]:
        listed: object = raw.get("assertions") or ()
        if not isinstance(listed, list | tuple):
            return ()
        if not listed and not self._of_suite:
            text = f"Case '{raw.get('id')}' has no 'assertions': it asserts nothing"
            self._warnings.add(
                text, loc, problems, name=f"'{raw.get('id')}'", several=_NO_ASSERTIONS
            )
        own = (*self._read_all(listed, (*loc, "assertions"), problems), *self._of_suite)
        note_weightless(own, loc, problems, f"case '{raw.get('id')}'")
        return own

    def _read_all(
        self, listed: Sequence[object], loc: Loc, problems: Problems
    ) -> tuple[Assertion, ...]:
        warned = len(self.assertions.warnings)
        assertions = [
            self.assertions.read(entry, (*loc, index), problems)
            for index, entry in enumerate(listed)
        ]
        if self._strict and len(self.assertions.warnings) > warned:
            for text in self.assertions.warnings[warned:]:
                problems.add(loc, text)
        return tuple(assertion for assertion in assertions if assertion is not None)

    def _fixture(self, raw: object, loc: Loc, problems: Problems) -> Evidence | None:
        if not isinstance(raw, Mapping) or not raw:
            return None
        try:
            if is_whole_evidence(raw):
                evidence = answer_evidence(raw)
            elif set(raw) == {"output"}:
                return answer_evidence(raw["output"])
            else:
                evidence = block_evidence(as_json(raw))
            primary = self._primary_output
            return evidence if primary is None else with_primary(evidence, primary)
        except AnswerError as error:
            problems.add(loc, str(error))
        except TypeError as error:
            problems.add(loc, f"holds what JSON cannot: {error}")
        return None


def _case(raw: SuiteCase, assertions: tuple[Assertion, ...], fixture: Evidence | None) -> Case:
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
