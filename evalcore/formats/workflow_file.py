"""Workflow files: the section `eval:`, and what is needed to run a workflow.

A block that runs is checked whole. A file whose cases all have fixtures is held to its shape only:
the known keys and the kinds of their values. Souls may stand in files of their own
(`custom/souls/*.yaml`), upward from the workflow file to the root of its repository.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final, Required, TypeVar

from pydantic import Field, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.checks.registry import Dialect, assertion_schema
from evalcore.errors import EvalError, LoadError, UsageError
from evalcore.formats.assertions import AssertionReader, CustomAssertion
from evalcore.formats.documents import (
    Document,
    as_json,
    parse_document,
    read_document,
)
from evalcore.formats.graders import Graders
from evalcore.formats.messages import InputOrigin, read_named_texts
from evalcore.formats.options import LoadOptions, Selection, choose_variants
from evalcore.formats.section import (
    OPEN,
    STRICT,
    EvalcoreSection,
    Fixture,
    MeasuredFixture,
    SectionReader,
    UniqueIds,
    check_required_cases,
    threshold_of,
)
from evalcore.formats.sources import append_case
from evalcore.formats.targets import Targets
from evalcore.formats.variables import variables_for
from evalcore.formats.warnings import CaseWarnings, UnjudgedCases
from evalcore.gates.builtin import Threshold
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case, Format, ScoreRule, Suite
from evalcore.model.target import Target, Variant
from evalcore.planning.spool import CaseSpool
from evalcore.problems import Problems, raise_all
from evalcore.settings import find_upward
from evalcore.shapes import Share, Text, adapter, sound_part
from evalcore.targets.answers import sum_metrics
from evalcore.targets.options import ENVIRONMENT
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.wording import Loc, describe, shown_path, suggest
from evalcore.workflow.definition import (
    MAX_DEPTH,
    PARTS,
    SOUL_KEYS,
    Block,
    Graph,
    Soul,
    WorkflowDefinition,
    WorkflowPart,
    WorkflowSections,
    apply_variant,
)
from evalcore.workflow.events import NO_EXECUTOR
from evalcore.workflow.reading import (
    BLOCK_TYPES,
    asks_model,
    behaviour_of,
    block_class,
    read_definition,
)
from evalcore.workflow.references import find_mistakes, unknown_placeholders


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
    evals, misshapen, section = _checked_sections(raw, problems)
    settings = SectionReader(section, options, problems)
    settings.refuse_both({"threshold": ("eval.threshold", evals.get("threshold"))})
    variants = settings.variants()
    for index, variant in enumerate(variants):
        if variant.target not in {None, TARGET}:
            problems.add(("evalcore", "variants", index, "target"), _unknown(variant.target))
    graders = judges_of(path.parent, options, problems)
    graders.use_suites(section, problems)
    executed = ExecutedWorkflow(raw, path, problems, options, graders, variants)
    reader = _CaseReader(raw, misshapen, graders, problems, strict=options.strict)
    selection = Selection(options)
    spool = reader.spool(selection, executed)
    target = executed.target(reader.fixture_blocks, reader.inputs)
    threshold = threshold_of(
        options.threshold, evals.get("threshold"), section.get("threshold"), default=1.0
    )
    policy = settings.policy(ScoreRule.BLOCKS, (Threshold(threshold).spec,), threshold)
    check_required_cases(policy, reader.ids.names, problems)
    baseline = settings.baseline([variant.id for variant in variants])
    raise_all((problems, *executed.file_problems, *graders.file_problems))
    if options.target not in {None, TARGET}:
        flag = options.called("--target")
        raise UsageError(f"{document.file}: {flag}: {_unknown(options.target)}")
    warnings = [*reader.warnings.texts, *selection.finish(document.file)]
    definition = settings.definition(
        Format.WORKFLOW_HARNESS,
        document,
        path,
        policy,
        name=(raw.get("workflow") or {}).get("name"),
        targets={**graders.used, TARGET: target},
        default_target=TARGET,
        variants=variants,
        baseline=baseline,
        judge=graders.default,
    )
    definition = choose_variants(definition, options)
    warnings += reader.unjudged.warnings(definition, strict=options.strict)
    return Suite(definition, spool, tuple(warnings))


def _unknown(target: str | None) -> str:
    return f"unknown target '{target}'; a workflow file has only '{TARGET}'"


def _checked_sections(
    raw: Mapping[str, Any], problems: Problems
) -> tuple[EvalSection, frozenset[int], EvalcoreSection]:
    """Note what is misshapen; return what is sound.

    Of `eval:` (but for its cases), the indices of its misshapen cases, and of `evalcore:`.
    """
    if "workflow" in raw:
        read_part(Graph, raw["workflow"], ("workflow",), problems, runs=False)
    for key in ("blocks", "souls"):
        members = raw.get(key)
        if members is not None and not isinstance(members, dict):
            problems.add((key,), f"expected a mapping of ids, got {describe(members)}")
            continue
        for name, part in (members or {}).items():
            if key == "blocks":
                read_block(part, (key, name), problems, runs=False)
            else:
                read_part(Soul, part, (key, name), problems, runs=False)
    evals: Any = raw.get("eval", {})
    wrong = []
    if "eval" in raw:
        wrong = problems.wrong_paths(evals, EvalSection, ("eval",)) or []
    if wrong:
        evals = sound_part(evals, wrong) if isinstance(evals, dict) else {}
    section: EvalcoreSection = {}
    if "evalcore" in raw:
        section = problems.sound_part(raw["evalcore"], EvalcoreSection, ("evalcore",))
    misshapen = frozenset(loc[1] for loc in wrong if len(loc) > 1 and isinstance(loc[1], int))
    return evals, misshapen, section


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
        self.warnings = CaseWarnings(strict=strict)
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
    def fixture_blocks(self) -> frozenset[str]:
        """Return the blocks that have fixtures in every case that has to be executed."""
        return self._fixture_blocks or frozenset()

    def spool(self, selection: Selection, execution: ExecutedWorkflow) -> CaseSpool:
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

    def _executed(self, case: Case, raw: EvalCase, loc: Loc, execution: ExecutedWorkflow) -> Case:
        """Return a case whose fixtures do not cover what it expects: executed, if that can be."""
        fixtures = raw.get("fixtures") or {}
        if not execution.possible(fixtures):
            absent = ", ".join(sorted(set(raw.get("expected") or ()) - set(fixtures))) or "a block"
            reason = f"no fixture for {absent}, and {_NOTHING_EXECUTES}"
            self.warnings.add(reason, loc, self._problems, name=f"case '{case.id}'")
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
            self.warnings.add(reason, loc, self._problems, name=f"case '{raw['id']}'")
        if misshapen or self._problems.count > before:
            return None
        is_complete = all(block in fixtures for block in expected)
        return Case(
            id=raw["id"],
            input=raw.get("inputs"),
            assertions=assertions,
            fixture=_evidence(fixtures, expected) if is_complete else None,
        )

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
        reader = AssertionReader(self._graders, Dialect.WORKFLOW, self.warnings)
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


P = TypeVar("P", bound=WorkflowPart)


def read_part(
    shape: type[P], raw: object, loc: Loc, problems: Problems, *, runs: bool = True
) -> P | None:
    """Return a part of the file; note what is wrong with it, of one that never runs its shape."""
    try:
        part: P = adapter(shape).validate_python(raw)
    except ValidationError as error:
        wrong = error if runs else _of_shape(error)
        if wrong is not None:
            problems.add_invalid(wrong, raw, shape, loc)
        return None
    return part


def _of_shape(error: ValidationError) -> ValidationError | None:
    """Return the errors in the keys of a part and in the kinds of their values, not below it."""
    errors: list[Any] = [
        {key: each[key] for key in ("type", "loc", "input", "ctx") if key in each}
        for each in error.errors(include_url=False)
        if len(each["loc"]) <= 1 and each["type"].endswith(("extra_forbidden", "_type"))
    ]
    return ValidationError.from_exception_data(error.title, errors) if errors else None


def read_block(raw: object, loc: Loc, problems: Problems, *, runs: bool = True) -> Block | None:
    """Return a block as the class of its type."""
    if not isinstance(raw, dict):
        problems.add(loc, f"a block is a mapping with 'type', got {describe(raw)}")
        return None
    kind = raw.get("type")
    if isinstance(kind, str) and kind in BLOCK_TYPES:
        return read_part(block_class(kind), raw, loc, problems, runs=runs)
    message = "is required" if "type" not in raw else f"expected text, got {describe(kind)}"
    if isinstance(kind, str):
        message = f"unknown type '{kind}'.{suggest(kind, BLOCK_TYPES)}"
    problems.add((*loc, "type"), message)
    return None


def read_workflow(
    raw: Mapping[str, Any], problems: Problems, prefix: Loc = ()
) -> WorkflowDefinition | None:
    """Return a workflow that has to run; None if something is wrong, which is noted."""
    before = problems.count
    written = raw.get("blocks")
    for name, block in (written if isinstance(written, dict) else {}).items():
        read_block(block, (*prefix, "blocks", name), problems)
    rest = {key: value for key, value in raw.items() if key != "blocks"}
    read_part(WorkflowSections, rest, prefix, problems)
    if problems.count > before or not raw.get("blocks"):
        return None
    return read_definition(raw)


_ID: Final = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)


def _with_souls(
    raw: Mapping[str, Any], folder: Path, collectors: list[Problems]
) -> Mapping[str, Any]:
    """Return a workflow with the souls of `custom/souls` that its blocks name and it has not.

    A soul without a file is left to the check of references; what is wrong in one is noted in a
    collector of its own.
    """
    inline = raw.get("souls") or {}
    if not isinstance(inline, dict):
        return raw
    found: dict[str, Any] = {}
    for name in dict.fromkeys(soul_references(raw)):
        path = _custom_file(folder, name) if name not in inline and _ID.fullmatch(name) else None
        if path is None:
            continue
        noted = Problems(shown_path(path), lambda _: None)
        collectors.append(noted)
        found[name] = {}
        try:
            document = read_document(path, noted.file)
        except LoadError as error:
            noted.include(error.problems)
            continue
        noted.locate = document.locate
        soul = read_named_texts(document.value, InputOrigin(path.parent, (), noted))
        if read_part(Soul, soul, (), noted) is not None:
            found[name] = as_json(soul)
    return {**raw, "souls": {**found, **inline}} if found else raw


def _custom_file(folder: Path, name: str) -> Path | None:
    """Return the nearest of the files of a soul upward; also where no repository says how far.

    A workflow in `custom/workflows` has them beside that folder.
    """
    names = (f"custom/souls/{name}.yaml", f"custom/souls/{name}.yml")
    path = find_upward(folder, names).path
    folder = folder.resolve()
    for custom in (folder, folder.parent):
        if path is None and custom.name == "custom":
            path = find_upward(custom.parent, names).path
    return path


def soul_references(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the souls that blocks and their exits name; nothing of what is misshapen."""
    blocks = raw.get("blocks")
    for block in blocks.values() if isinstance(blocks, dict) else ():
        if not isinstance(block, dict):
            continue
        exits = block.get("exits")
        for part in (block, *(exits if isinstance(exits, list) else ())):
            named = part if isinstance(part, dict) else {}
            reference = named.get("soul_ref", named.get("soul"))
            if isinstance(reference, str):
                yield reference


# Known without an entry; their keys come from the environment.
_PROTOCOLS: Final = ("anthropic", "openai")


def judges_of(folder: Path, options: LoadOptions, problems: Problems) -> Graders:
    """Return what reads judges; the nearest `targets.yaml` is opened once one is needed."""
    return Graders(
        folder,
        lambda: Targets(
            None, folder, variables_for(folder, options), problems, strict=options.strict
        ),
    )


def find_providers(
    names: Mapping[str, Loc], folder: Path, options: LoadOptions, problems: Problems
) -> tuple[dict[str, dict[str, Any]], list[Problems]]:
    """Return `{kind, options}` by name, and the collectors of the files that have them.

    A provider is an entry of the `targets.yaml`. A name that is none, nor `openai` or `anthropic`,
    is noted at its place.
    """
    if not names:
        return {}, []
    variables = variables_for(folder, options)
    try:
        targets = Targets(None, folder, variables, problems, strict=options.strict)
    except LoadError as error:
        problems.include(error.problems)
        return {}, []
    for name, loc in names.items():
        if name in targets:
            targets.use(name, loc, problems, without=("model",))  # the soul names it
        elif name not in _PROTOCOLS and targets.complete:
            providers = dict.fromkeys([*targets.names, *_PROTOCOLS])
            hint = suggest(name, providers)
            problems.add(loc, f"unknown provider '{name}'.{hint} Write an entry in targets.yaml")
    entries = {
        name: {"kind": target.kind, "options": dict(target.options)}
        for name, target in targets.used.items()
        if name in names
    }
    file_problems = targets.file_problems
    return entries, [] if file_problems is None else [file_problems]


_SUFFIXES: Final = ("", ".yaml", ".yml")
_FOLDERS: Final = ("", "custom/workflows/")


class ExecutedWorkflow:
    """Checks a workflow file that has to run, and makes the options of its target.

    Mistakes are noted at their lines: in the file's own collector, or in those of the sub-workflow
    files (`file_problems`).
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        path: Path,
        problems: Problems,
        options: LoadOptions,
        graders: Graders,
        variants: Sequence[Variant] = (),
    ) -> None:
        self.file_problems: list[Problems] = []
        self._raw, self._path, self._problems, self._options = raw, path, problems, options
        self._graders, self._variants = graders, variants
        self._workflows: dict[str, dict[str, Any]] = {}
        self._root = repository_root(path.resolve().parent)
        self._with_souls = True
        self._inputs: Collection[str] | None = None
        # Whether a case without fixtures for all that it expects can be executed.
        self._needed = self._opened = False

    def possible(self, fixture_blocks: Collection[str]) -> bool:
        """Whether a case with fixtures for these blocks can be executed.

        That needs a workflow, and a provider if the workflow begins with a model call.
        """
        if self._options.executor:
            return True
        if not self._opened:
            # A file whose cases all have fixtures asks no soul.
            self._opened = True
            self._raw = _with_souls(self._raw, self._path.parent, self.file_problems)
        begins = can_begin(self._raw, fixture_blocks, self._variants, self._options)
        self._needed |= begins
        return begins

    def target(self, fixture_blocks: frozenset[str], inputs: Collection[str]) -> Target:
        """Return the target of cases with these `inputs`; the `fixture_blocks` never run."""
        roots = {re.split(r"[.\[]", problem.path)[0] for problem in self._problems.noted}
        if not self._needed or not roots.isdisjoint({"blocks", "souls", "workflow"}):
            return Target(TARGET, "workflow", {"definition": as_json(behaviour_of(self._raw))})
        return Target(TARGET, "workflow", self.options(fixture_blocks, inputs))

    def options(
        self, fixtures: frozenset[str] = frozenset(), inputs: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Return the options of the target; `fixtures` are the blocks that never run.

        `inputs` are those of the cases, if they are known. Mistakes are noted; the options are
        unusable then.
        """
        variants = self._variants
        self._inputs = inputs
        self._with_souls = has_provider(self._raw, fixtures, variants, self._options)
        if not self._check(self._raw, self._problems, fixtures):
            return {}
        definition: dict[str, Any] = behaviour_of(as_json(self._raw))
        self._check_variants(definition, fixtures, variants)
        checks = _block_checks(self._raw, self._graders, self._problems)
        self._read_below(definition, self._path, self._problems, fixtures, 1)
        options: dict[str, Any] = {
            "workflows": self._workflows,
            "checks": checks,
            "providers": self._providers(definition, fixtures, variants),
        }
        return {"definition": definition, **{key: part for key, part in options.items() if part}}

    def _check(
        self,
        raw: Mapping[str, Any],
        problems: Problems,
        fixtures: frozenset[str] = frozenset(),
        prefix: Loc = (),
    ) -> bool:
        """Note what is wrong with a workflow; return whether its shape is sound."""
        workflow = read_workflow(raw, problems, prefix)
        if workflow is None:
            return False
        for mistake in find_mistakes(workflow, fixtures, with_souls=self._with_souls):
            problems.add((*prefix, *mistake.loc), mistake.message)
        if self._inputs is not None and problems is self._problems:  # not of a sub-workflow
            for mistake in unknown_placeholders(workflow, self._inputs, fixtures):
                problems.add((*prefix, *mistake.loc), mistake.message)
        return True

    def _check_variants(
        self, definition: Mapping[str, Any], fixtures: frozenset[str], variants: Sequence[Variant]
    ) -> None:
        keys = sorted(PARTS | SOUL_KEYS)
        for index, variant in enumerate(variants):
            loc: Loc = ("evalcore", "variants", index, "config")
            for key in variant.config:
                if key not in keys:
                    message = f"unknown key '{key}'.{suggest(key, keys)}"
                    self._problems.add((*loc, key), message)
            changed = apply_variant(definition, variant.config)
            if not self._problems.count and changed != definition:
                self._check(changed, self._problems, fixtures, loc)

    def _read_below(
        self,
        raw: Mapping[str, Any],
        path: Path,
        problems: Problems,
        fixtures: frozenset[str],
        depth: int,
    ) -> None:
        """Read the workflows that blocks of type `workflow` name, and those that they name."""
        for name, block in raw["blocks"].items():
            reference = block.get("workflow_ref")
            if block["type"] != "workflow" or name in fixtures or not reference:
                continue
            loc: Loc = ("blocks", name, "workflow_ref")
            if depth > MAX_DEPTH:
                message = f"workflows stand in one another deeper than {MAX_DEPTH} times"
                problems.add(loc, message)
                return
            try:
                file = _find(self._root, path.resolve().parent, reference)
            except EvalError as error:
                problems.add(loc, str(error))
                continue
            key = file.relative_to(self._root).as_posix()
            # The block names the key from now on: where the file lies does not matter to a worker.
            block["workflow_ref"] = key
            if key not in self._workflows:
                self._workflows[key] = {}
                self._workflows[key] = self._read(file, loc, problems, depth)

    def _read(self, path: Path, loc: Loc, outer: Problems, depth: int) -> dict[str, Any]:
        try:
            document = read_document(path, shown_path(path))
        except LoadError as error:
            outer.include(error.problems)
            return {}
        problems = Problems(document.file, document.locate)
        self.file_problems.append(problems)
        raw = document.value
        if not isinstance(raw, dict) or not isinstance(raw.get("blocks"), dict):
            outer.add(loc, f"{document.file} is no workflow: it has no 'blocks'")
            return {}
        raw = read_named_texts(raw, InputOrigin(path.resolve().parent, (), problems))
        raw = _with_souls(raw, path.parent, self.file_problems)
        if not self._check(raw, problems):
            return {}
        definition: dict[str, Any] = behaviour_of(as_json(raw))
        self._read_below(definition, path, problems, frozenset(), depth + 1)
        return definition

    def _providers(
        self, definition: Mapping[str, Any], fixtures: frozenset[str], variants: Sequence[Variant]
    ) -> dict[str, Any]:
        """Return the entries of `targets.yaml` that souls of blocks that run name."""
        names: dict[str, Loc] = {}
        for name, loc in named_providers(definition, fixtures):
            names.setdefault(name, loc)
        for index, variant in enumerate(variants):
            if isinstance(variant.config.get("provider"), str):
                loc = ("evalcore", "variants", index, "config", "provider")
                names.setdefault(variant.config["provider"], loc)
            changed = apply_variant(definition, variant.config)
            for name, _ in named_providers(changed, fixtures):
                names.setdefault(name, ("evalcore", "variants", index, "config"))
        for raw in self._workflows.values():
            for name, _ in named_providers(raw, frozenset()) if raw else ():
                names.setdefault(name, ("blocks",))
        providers, file_problems = find_providers(
            names, self._path.parent, self._options, self._problems
        )
        self.file_problems.extend(file_problems)
        return providers


def has_provider(
    raw: Mapping[str, Any],
    fixtures: Collection[str],
    variants: Sequence[Variant],
    options: LoadOptions,
) -> bool:
    """Whether a provider is set up: the environment knows one, or a soul or variant names one.

    In a replay none is needed.
    """
    if not options.secrets_required or any(map(options.environment.get, ENVIRONMENT)):
        return True
    if any("provider" in variant.config or "souls" in variant.config for variant in variants):
        return True
    return any(named_providers(raw, fixtures))


def can_begin(
    raw: Mapping[str, Any],
    fixtures: Collection[str],
    variants: Sequence[Variant],
    options: LoadOptions,
) -> bool:
    """Whether anything of the workflow can run: it has blocks, and the first needs no provider.

    Or there is a provider. A misshapen workflow counts as able, so that its mistakes are noted.
    """
    blocks, workflow = raw.get("blocks"), raw.get("workflow")
    if not isinstance(blocks, dict) or not blocks:
        return False
    entry = workflow.get("entry") if isinstance(workflow, dict) else None
    name = entry if isinstance(entry, str) else next(iter(blocks))
    block = blocks.get(name)
    kind = block.get("type") if isinstance(block, dict) else None
    if name in fixtures or not asks_model(kind):
        return True
    return has_provider(raw, fixtures, variants, options)


def named_providers(raw: Mapping[str, Any], fixtures: Collection[str]) -> Iterator[tuple[str, Loc]]:
    """Yield the providers that the souls of blocks that run name; nothing of what is misshapen."""
    souls, blocks = raw.get("souls"), raw.get("blocks")
    if not isinstance(souls, dict) or not isinstance(blocks, dict):
        return
    for name, block in blocks.items():
        if name in fixtures or not isinstance(block, dict) or not asks_model(block.get("type")):
            continue
        for reference in soul_references({"blocks": {name: block}}):
            soul = souls.get(reference)
            provider = soul.get("provider") if isinstance(soul, dict) else None
            if isinstance(provider, str):
                yield provider, ("souls", reference, "provider")


def _block_checks(raw: Mapping[str, Any], graders: Graders, problems: Problems) -> dict[str, Any]:
    """Return the blocks' own assertions, read; they are checked whenever the block runs."""
    checks: dict[str, Any] = {}
    reader = AssertionReader(graders, Dialect.WORKFLOW)
    for name, block in raw["blocks"].items():
        assertions = []
        for number, entry in enumerate(block.get("assertions") or ()):
            loc: Loc = ("blocks", name, "assertions", number)
            assertion = reader.read(entry, loc, problems)
            if assertion is not None:
                assertions.append(list(assertion))
        if assertions:
            checks[str(name)] = as_json(assertions)
    return checks


def _find(root: Path, folder: Path, reference: str) -> Path:
    """Return the file of a workflow: a path, or a name in `custom/workflows/`, upward to `root`.

    Raise `EvalError` with the first path that was tried.
    """
    problem: EvalError | None = None
    for parent in _FOLDERS:
        for suffix in _SUFFIXES:
            try:
                return resolve_inside(root, folder, f"{parent}{reference}{suffix}")
            except EvalError as error:
                problem = problem or error
    if problem is None:
        raise AssertionError("there are folders to search")
    raise problem


def read_registered_workflow(written: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return a workflow's definition from a mapping or from YAML text.

    Raises `LoadError` with every mistake. Blocks cannot name workflow files: there are none.
    """
    if isinstance(written, str):
        document = parse_document(written.encode("utf-8", "replace"), "definition")
        problems, raw = Problems(document.file, document.locate), document.value
    else:
        problems, raw = Problems("definition", lambda _: None), as_json(written)
    if not isinstance(raw, dict):
        problems.add((), f"a workflow is a mapping with 'blocks', got {describe(raw)}")
        problems.raise_if_any()
    if not isinstance(raw.get("blocks"), dict):
        description = f", got {describe(raw['blocks'])}" if "blocks" in raw else ""
        problems.add(("blocks",), f"expected a mapping of ids to blocks{description}")
    elif not raw["blocks"]:
        problems.add(("blocks",), "a workflow has one block at least, got none")
    read_named_texts(raw, InputOrigin(None, (), problems))
    workflow = read_workflow(raw, problems) if isinstance(raw.get("blocks"), dict) else None
    if workflow is not None:
        for mistake in find_mistakes(workflow, with_souls=False):
            problems.add(mistake.loc, mistake.message)
        for name, block in workflow.blocks.items():
            if block.type == "workflow":
                message = "a registered workflow cannot contain another one"
                problems.add(("blocks", name, "type"), message)
    problems.raise_if_any()
    definition: dict[str, Any] = behaviour_of(as_json(raw))
    return definition


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
