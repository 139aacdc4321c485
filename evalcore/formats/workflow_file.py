"""Load workflow files with an `eval:` section (docs/reference/workflow-files.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final, Required, cast

from pydantic import Field, with_config
from typing_extensions import TypedDict

from evalcore.checks.dialects import assertion_schema
from evalcore.checks.registry import Dialect
from evalcore.datasets.reference import SCHEME, names_dataset
from evalcore.errors import UsageError
from evalcore.formats.assertions import AssertionReader, CustomAssertion
from evalcore.formats.documents import Document, as_json
from evalcore.formats.executed_workflow import CustomFiles, judges_of, read_block, read_part
from evalcore.formats.graders import Graders
from evalcore.formats.messages import InputOrigin, read_named_texts
from evalcore.formats.options import LoadOptions, Selection, choose_variants
from evalcore.formats.rows import NO_TEST
from evalcore.formats.section import (
    OPEN,
    STRICT,
    EvalcoreSection,
    Fixture,
    MeasuredFixture,
    SectionReader,
    UniqueIds,
    check_required_cases,
    suite_name,
    threshold_of,
)
from evalcore.formats.sources import append_case, dataset_tests, forbidden_parts
from evalcore.formats.warnings import CaseWarnings, UnjudgedCases
from evalcore.gates.builtin import Threshold
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import (
    Case,
    DatasetSource,
    Format,
    ScoreRule,
    Source,
    Suite,
    SuiteDefinition,
)
from evalcore.model.target import Target, Variant
from evalcore.planning.spool import CaseSpool
from evalcore.problems import Problems, raise_all
from evalcore.shapes import Share, Text, adapter, sound_part
from evalcore.targets.answers import sum_metrics
from evalcore.wording import Loc, describe, suggest
from evalcore.workflow.definition import Graph, Soul
from evalcore.workflow.events import NO_EXECUTOR
from evalcore.workflow.reading import BLOCK_TYPES, behaviour_of, block_class


@with_config(STRICT)
class EvalCase(TypedDict, total=False):
    """One case: inputs, fixtures, and assertions per block."""

    id: Required[Text]
    description: str | None
    inputs: dict[str, Any] | None
    fixtures: dict[str, Fixture] | None
    expected: dict[str, list[Any]] | None


@with_config(STRICT)
class EvalSection(TypedDict, total=False):
    """The `eval:` section. `threshold` defaults to 1.0."""

    threshold: Share | None
    cases: Required[Annotated[list[EvalCase], Field(min_length=1)]]


@with_config(OPEN)
class WorkflowFile(TypedDict, total=False):
    """A workflow file with an `eval:` section; other top-level keys are allowed."""

    version: str | float | int
    blocks: dict[str, Any] | None
    souls: dict[str, Soul] | None
    workflow: Graph
    eval: Required[EvalSection]
    evalcore: EvalcoreSection


_CASES: Final = ("eval", "cases")
_OUTPUT_ONLY: Final = {"output"}


def with_dataset_cases(
    raw: dict[str, Any], options: LoadOptions, problems: Problems, versions: list[DatasetSource]
) -> dict[str, Any]:
    """Return a workflow file with the cases of the dataset that its `eval.cases` names.

    A file that names none is returned as it is. Raises `LoadError` for a dataset that is not there,
    and for cases that a workflow file cannot have. All cases are in memory, as those of a file are.
    """
    evals = raw.get("eval")
    written = evals.get("cases") if isinstance(evals, Mapping) else None
    if not isinstance(evals, Mapping) or not names_dataset(written):
        return raw
    cases: list[dict[str, Any]] = []
    rows = problems
    for test in dataset_tests(str(written), options.store, _CASES, problems, versions):
        rows = test.problems
        if test.value is not NO_TEST:
            cases.append(_case(test.value, rows))
    rows.raise_if_any()
    problems.raise_if_any()
    return {**raw, "eval": {**evals, "cases": cases}}


def _case(row: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Return a row as a case of a workflow file: a mapping is its inputs."""
    value = row.get("input")
    case = {"id": row["id"], "inputs": value if isinstance(value, dict) else {"input": value}}
    fixtures = row.get("fixtures") or {}
    if set(fixtures) - _OUTPUT_ONLY:
        case["fixtures"] = fixtures
    expected = row.get("expected") or {}
    for block, assertions in expected.items() if isinstance(expected, dict) else ():
        for loc, message in forbidden_parts({"assertions": assertions}):
            problems.add(("expected", block, *loc[1:]), message)
    if expected:
        case["expected"] = expected
    elif row.get("assertions"):
        message = "a workflow file takes assertions by block: {expected: {BLOCK: [...]}}"
        problems.add(("assertions",), message)
    return case


TARGET = "workflow"
_NOTHING_EXECUTES = (
    "nothing can execute the workflow: add fixtures, or blocks whose souls name a `provider`"
)
Fixtures = Mapping[str, str | MeasuredFixture]
"""The given output of each block, perhaps with its measures."""


def load_workflow_file(document: Document, path: Path, options: LoadOptions) -> Suite:
    """Return the suite of a workflow file; raise `LoadError` with every mistake in it."""
    problems = Problems(document.file, document.locate)
    raw = document.value
    if not isinstance(raw, dict):
        problems.add((), "a workflow file is a mapping with 'eval:'")
        problems.raise_if_any()
    if "eval" not in raw:
        problems.add((), "Workflow YAML has no eval section")
    raw = read_named_texts(raw, InputOrigin(path.resolve().parent, (), problems))
    versions: list[DatasetSource] = []
    raw = with_dataset_cases(raw, options, problems, versions)
    evals, misshapen, section = _checked_sections(raw, problems)
    settings = SectionReader(section, options, problems)
    settings.refuse_both({"threshold": ("eval.threshold", evals.get("threshold"))})
    variants = settings.variants()
    _check_variants(variants, problems)
    graders = judges_of(path.parent, options, problems)
    graders.use_suites({}, section, problems)
    reader = _CaseReader(raw, misshapen, graders, problems, strict=options.strict)
    selection = Selection(options)
    execution = _Execution(raw, path, problems, options, variants, graders)
    spool = reader.spool(selection, execution)
    target, file_problems = execution.target(reader.fixture_blocks, reader.inputs)
    threshold = threshold_of(
        options.threshold, evals.get("threshold"), section.get("threshold"), default=1.0
    )
    policy = settings.policy(ScoreRule.BLOCKS, (Threshold(threshold).spec,), threshold)
    check_required_cases(policy, reader.ids.names, problems)
    baseline = settings.baseline([variant.id for variant in variants])
    raise_all((problems, *file_problems, *graders.file_problems))
    _check_target(options, document.file)
    warnings = [*reader.warnings, *selection.finish(document.file)]
    workflow = raw.get("workflow") or {}
    definition = SuiteDefinition(
        name=suite_name(path, section.get("name"), workflow.get("name")),
        format=Format.WORKFLOW_HARNESS,
        source=Source(document.file, str(path.resolve().parent), document.sha256),
        policy=policy,
        targets={**graders.used, TARGET: target},
        default_target=TARGET,
        variants=variants,
        baseline=baseline,
        limits=settings.limits(),
        judge=graders.default,
        require_calibrated=bool(section.get("require_calibrated")),
        evidence=settings.evidence(),
        tags=tuple(section.get("tags", ())),
        datasets=tuple(versions),
        file_rules=options.file_rules,
    )
    definition = choose_variants(definition, options)
    warnings += reader.unjudged.warnings(definition, strict=options.strict)
    return Suite(definition, spool, tuple(warnings))


def _check_variants(variants: Sequence[Variant], problems: Problems) -> None:
    for index, variant in enumerate(variants):
        if variant.target not in {None, TARGET}:
            message = f"unknown target '{variant.target}'; a workflow file has only '{TARGET}'"
            problems.add(("evalcore", "variants", index, "target"), message)


def _check_target(options: LoadOptions, file: str) -> None:
    if options.target not in {None, TARGET}:
        message = f"unknown target '{options.target}'; a workflow file has only '{TARGET}'"
        raise UsageError(f"{file}: {options.called('--target')}: {message}")


@dataclass
class _Execution:
    """Whether the cases without fixtures can be executed, and by what target."""

    raw: Mapping[str, Any]
    path: Path
    problems: Problems
    options: LoadOptions
    variants: tuple[Variant, ...]
    graders: Graders
    needed: bool = False
    custom: CustomFiles | None = None

    def possible(self, fixture_blocks: Collection[str]) -> bool:
        """Whether a case with fixtures for these blocks can be executed.

        That needs a workflow, and a provider if the workflow begins with a model call.
        """
        if self.options.executor:
            return True
        if self.custom is None:
            # A file whose cases all have fixtures asks no soul.
            self.custom = CustomFiles(self.path.parent)
            self.raw = self.custom.with_souls(self.raw)
        from evalcore.formats.executed_workflow import can_begin

        begins = can_begin(self.raw, fixture_blocks, self.variants, self.options)
        self.needed |= begins
        return begins

    def target(
        self, fixture_blocks: frozenset[str], inputs: Collection[str]
    ) -> tuple[Target, list[Problems]]:
        """Return the target, and the collectors of the other files that it was read from.

        The `fixture_blocks` never run; the cases have these `inputs`.
        """
        options: dict[str, Any] = {"definition": as_json(behaviour_of(self.raw))}
        file_problems: list[Problems] = []
        if self.needed and not _is_misshapen(self.problems):
            from evalcore.formats.executed_workflow import ExecutedWorkflow

            workflow = ExecutedWorkflow(
                self.raw, self.path, self.problems, self.options, self.graders
            )
            options = workflow.options(fixture_blocks, self.variants, inputs)
            file_problems = workflow.file_problems
        custom = self.custom.file_problems if self.custom else ()
        return Target(TARGET, "workflow", options), [*file_problems, *custom]


def _is_misshapen(problems: Problems) -> bool:
    """Whether something is wrong already with the shape of the workflow itself."""
    roots = {problem.path.partition(".")[0].partition("[")[0] for problem in problems.noted}
    return not roots.isdisjoint({"blocks", "souls", "workflow"})


def _checked_sections(
    raw: Mapping[str, Any], problems: Problems
) -> tuple[EvalSection, frozenset[int], EvalcoreSection]:
    """Note what is misshapen; return what is sound.

    Of `eval:` (but for its cases), the indices of its misshapen cases, and of `evalcore:`.
    """
    if "workflow" in raw:
        read_part(Graph, raw["workflow"], ("workflow",), problems, runs=False)
    for name, block in _members(raw, "blocks", problems):
        read_block(block, ("blocks", name), problems, runs=False)
    for name, soul in _members(raw, "souls", problems):
        read_part(Soul, soul, ("souls", name), problems, runs=False)
    evals: Any = raw.get("eval", {})
    wrong = []
    if "eval" in raw:
        wrong = problems.wrong_paths(evals, EvalSection, ("eval",)) or []
    if wrong:
        evals = sound_part(evals, EvalSection, wrong) if isinstance(evals, dict) else {}
    section: EvalcoreSection = {}
    if "evalcore" in raw:
        section = problems.sound_part(raw["evalcore"], EvalcoreSection, ("evalcore",))
    misshapen = frozenset(loc[1] for loc in wrong if len(loc) > 1 and isinstance(loc[1], int))
    return evals, misshapen, section


def _members(raw: Mapping[str, Any], key: str, problems: Problems) -> Iterable[tuple[str, Any]]:
    members = raw.get(key)
    if isinstance(members, dict):
        return members.items()
    if members is not None:
        problems.add((key,), f"expected a mapping of ids, got {describe(members)}")
    return ()


class _CaseReader:
    """Turns what stands under `eval.cases` into cases; notes everything that is wrong in them."""

    def __init__(
        self,
        raw: Mapping[str, Any],
        misshapen: frozenset[int],
        graders: Graders,
        problems: Problems,
        *,
        strict: bool,
    ) -> None:
        self.unjudged = UnjudgedCases()
        self._warnings = CaseWarnings(strict=strict)
        self._misshapen = misshapen
        self._graders, self._problems = graders, problems
        self._block_ids = _block_ids(raw)
        self.ids = UniqueIds("duplicate eval case id: {}")
        evals = raw.get("eval")
        cases = evals.get("cases") if isinstance(evals, dict) else None
        self._cases: list[Any] = cases if isinstance(cases, list) else []
        self._fixture_blocks: frozenset[str] | None = None
        self.inputs: set[str] = set()

    @property
    def warnings(self) -> list[str]:
        """Warnings of cases that assert nothing, and of assertions that decide nothing."""
        return self._warnings.texts

    @property
    def fixture_blocks(self) -> frozenset[str]:
        """Return the blocks that have fixtures in every case that has to be executed."""
        return self._fixture_blocks or frozenset()

    def spool(self, selection: Selection, execution: _Execution) -> CaseSpool:
        """Return the selected cases; a misshapen one is noted already and left out."""
        spool = CaseSpool()
        for index, raw in enumerate(self._cases):
            loc: Loc = ("eval", "cases", index)
            case = self._read(raw, loc, index in self._misshapen)
            if case is None or not selection.keeps(case.id, case.tags):
                continue
            if case.fixture is None:
                case = self._executed(case, raw, loc, execution)
            append_case(spool, case, loc, self._problems, noun="case")
            self.unjudged.note(case)
        return spool

    def _executed(self, case: Case, raw: EvalCase, loc: Loc, execution: _Execution) -> Case:
        """Return a case whose fixtures do not cover what it expects: executed, if that can be."""
        fixtures = raw.get("fixtures") or {}
        if not execution.possible(fixtures):
            absent = ", ".join(sorted(set(raw.get("expected") or ()) - set(fixtures))) or "a block"
            reason = f"no fixture for {absent}, and {_NOTHING_EXECUTES}"
            self._warnings.add(reason, loc, self._problems, name=f"case '{case.id}'")
            return case._replace(reason_not_executable=NO_EXECUTOR.format(id=case.id))
        blocks, before = frozenset(fixtures), self._fixture_blocks
        self._fixture_blocks = blocks if before is None else before & blocks
        return case._replace(block_fixtures=_evidence(fixtures, {})) if fixtures else case

    def _read(self, raw: Any, loc: Loc, misshapen: bool) -> Case | None:
        """Return the case; None if something is wrong, even if that is noted already."""
        if not isinstance(raw, dict):
            return None
        before = self._problems.count
        self.ids.note(raw.get("id"), loc, self._problems)
        fixtures, expected = raw.get("fixtures") or {}, raw.get("expected") or {}
        self.inputs.update(raw.get("inputs") or ())
        for key, blocks in (("fixtures", fixtures), ("expected", expected)):
            self._check_blocks(blocks, (*loc, key))
        assertions = self._assertions(expected, (*loc, "expected"))
        if not expected and isinstance(raw.get("id"), str):
            reason = "no 'expected': it asserts nothing"
            self._warnings.add(reason, loc, self._problems, name=f"case '{raw['id']}'")
        if misshapen or self._problems.count > before:
            return None
        return _case_loader(cast("EvalCase", raw), fixtures, expected, assertions)

    def _check_blocks(self, blocks: object, loc: Loc) -> None:
        """Note ids that are neither a block nor `block.exit`, if the file has blocks."""
        if self._block_ids is None or not isinstance(blocks, dict):
            return
        for block in blocks:
            if block not in self._block_ids:
                hint = suggest(block, self._block_ids)
                self._problems.add((*loc, block), f"unknown block '{block}'.{hint}")

    def _assertions(self, expected: object, loc: Loc) -> tuple[Assertion, ...]:
        """Return the assertions, block by block; note wrong ones and blocks without any."""
        assertions = []
        reader = AssertionReader(self._graders, Dialect.WORKFLOW, self._warnings)
        for block, entries in expected.items() if isinstance(expected, dict) else ():
            if not isinstance(entries, list):
                continue
            if not entries:
                message = "asserts nothing; add an assertion or remove the block"
                self._problems.add((*loc, block), message)
            for number, entry in enumerate(entries):
                at = (*loc, block, number)
                assertion = reader.read(entry, at, self._problems, block=block)
                if assertion is not None:
                    assertions.append(assertion)
        return tuple(assertions)


def _case_loader(
    raw: EvalCase,
    fixtures: Fixtures,
    expected: Mapping[str, object],
    assertions: tuple[Assertion, ...],
) -> Case:
    is_complete = all(block in fixtures for block in expected)
    return Case(
        id=raw["id"],
        input=raw.get("inputs"),
        assertions=assertions,
        fixture=_evidence(fixtures, expected) if is_complete else None,
    )


def _evidence(fixtures: Fixtures, expected: Mapping[str, object]) -> Evidence:
    """Return the evidence that fixtures give; the primary output is the last expected block's."""
    outputs: dict[str, str] = {}
    measured: dict[str, Metrics] = {}
    for block, fixture in fixtures.items():
        if isinstance(fixture, str):
            outputs[block] = fixture
        else:
            outputs[block] = fixture["output"]
            if fixture.get("metrics"):
                measured[block] = Metrics(**fixture["metrics"])
    last = next(reversed(list(expected or fixtures)), None)
    return Evidence(
        output=outputs.get(last, "") if last is not None else "",
        outputs=outputs,
        metrics=sum_metrics(measured),
        block_metrics=measured,
    )


def _block_ids(raw: Mapping[str, Any]) -> set[str] | None:
    """Return the ids that fixtures and expectations may name; None if the file has no blocks."""
    blocks = raw.get("blocks")
    if not isinstance(blocks, dict):
        return None
    ids = set(blocks)
    for name, block in blocks.items():
        exits = block.get("exits") if isinstance(block, dict) else None
        for exit_ in exits if isinstance(exits, list) else ():
            if isinstance(exit_, dict) and "id" in exit_:
                ids.add(f"{name}.{exit_['id']}")
    return ids


def workflow_file_schema() -> dict[str, Any]:
    """Return the file's schema with the assertions that the loader checks one by one put in."""
    schema = adapter(WorkflowFile).json_schema()
    block = _blocks()
    custom = adapter(CustomAssertion).json_schema()
    definitions = schema["$defs"]
    for part in (block, custom):
        definitions |= part.pop("$defs", {})
    definitions["Block"] = block
    assertion = assertion_schema(Dialect.WORKFLOW, definitions)
    definitions["Assertion"] = {"anyOf": [assertion, custom]}
    listed = {"type": "array", "items": {"$ref": "#/$defs/Assertion"}}
    definitions["EvalCase"]["properties"]["expected"] = {
        "description": "Assertions by block id.",
        "anyOf": [{"type": "object", "additionalProperties": listed}, {"type": "null"}],
    }
    cases = definitions["EvalSection"]["properties"]
    cases["cases"] = {"anyOf": [cases["cases"], {"type": "string", "pattern": f"^{SCHEME}"}]}
    schema["properties"]["blocks"] = {
        "anyOf": [
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/Block"}},
            {"type": "null"},
        ]
    }
    schema["$defs"] = definitions
    return schema


def _blocks() -> dict[str, Any]:
    """Return the schema of a block; what only a block that runs needs is not required."""
    classes = [block_class(name) for name in BLOCK_TYPES]
    shape: Any = reduce(or_, classes)
    schema = adapter(Annotated[shape, Field(discriminator="type")]).json_schema()
    for block in classes:
        schema["$defs"][block.__name__]["required"] = ["type"]
    return schema
