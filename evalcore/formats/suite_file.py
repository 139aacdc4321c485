"""Load suite files: cases × variants, baseline, scorers, gates (docs/reference/suites.md)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Required, cast

from pydantic import Field, with_config
from typing_extensions import TypedDict

from evalcore.checks.registry import Dialect, assertion_schema
from evalcore.checks.scorers import parse_scorer
from evalcore.errors import UsageError
from evalcore.formats.assertions import AssertionReader, other_types
from evalcore.formats.documents import Document, as_json, read_named, with_snake_keys
from evalcore.formats.graders import Graders
from evalcore.formats.messages import InputOrigin, read_named_texts
from evalcore.formats.options import LoadOptions, Selection, choose_variants
from evalcore.formats.rows import RawTest
from evalcore.formats.section import (
    STRICT,
    EvalcoreSection,
    SectionReader,
    SharedKeys,
    UniqueIds,
    check_required_cases,
)
from evalcore.formats.sources import NamedFiles, RowRules, declared_types, spool_rows, suite_tests
from evalcore.formats.targets import Targets, TargetShape
from evalcore.formats.variables import Variables, interpolate, variables_for
from evalcore.formats.warnings import CaseWarnings
from evalcore.gates.builtin import PassRate
from evalcore.gates.comparing import NoRegressions
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence
from evalcore.model.suite import (
    Case,
    DatasetSource,
    Format,
    ScorerSpec,
    ScoreRule,
    Source,
    Suite,
    SuiteDefinition,
)
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant
from evalcore.problems import Problems, raise_all
from evalcore.shapes import (
    CALLABLE,
    ParameterError,
    Text,
    adapter,
    camel_case,
    fields_of,
    snake_case,
)
from evalcore.targets.answers import (
    AnswerError,
    answer_evidence,
    block_evidence,
    is_whole_evidence,
    with_primary,
)
from evalcore.targets.registry import KINDS, MODEL_KINDS
from evalcore.trust.imports import ImportPolicy
from evalcore.wording import Loc, path_text, suggest
from evalcore.workflow.definition import PARTS, SOUL_KEYS


@with_config(STRICT)
class SuiteCase(TypedDict, total=False):
    """One case: an input, what is given instead of executing, and assertions."""

    id: Required[Text]
    name: str
    description: str | None
    input: Any
    expected_output: Any
    criteria: str | None
    tags: list[str]
    fixtures: dict[str, Any] | None
    assertions: list[Any] | None
    metadata: dict[str, Any]


@with_config(STRICT)
class SuiteVariant(TypedDict, total=False):
    """A small named change: provider, model and configuration."""

    id: Required[Text]
    provider: Text | None
    model: Text | None
    target: Text | None
    config: dict[str, Any] | None
    description: str
    tags: list[str]


@with_config(STRICT)
class SuiteLevel(SharedKeys, total=False):
    """A suite without its cases."""

    description: str | None
    version: str | float | int
    flow: Required[Annotated[str, Field(min_length=1)] | dict[str, Any]]
    primary_output: Text
    variants: Annotated[list[SuiteVariant], Field(min_length=1)]
    assertions: list[Any] | None
    scorers: list[Any]
    targets: list[TargetShape]
    columns: dict[str, Text]
    evalcore: EvalcoreSection


@with_config(STRICT)
class SuiteFile(SuiteLevel, total=False):
    """A whole suite file: `cases` is a list, or the path of a file or glob that holds them."""

    cases: Required[
        Annotated[list[SuiteCase], Field(min_length=1)]
        | str
        | Annotated[list[str], Field(min_length=1)]
    ]


@with_config(STRICT)
class FunctionFlow(TypedDict, total=False):
    """A function that makes or is the flow."""

    callable: Required[Annotated[str, Field(pattern=CALLABLE)]]
    behaviour: Any
    isolation: Literal["process", "inline"] | None


@with_config(STRICT)
class WrappedFlow(TypedDict, total=False):
    """A flow, and the block whose output is checked."""

    flow: Any
    primary_output: str | None
    primary_output_node_id: str | None


_KEYS = ("expected_output",)


class CaseReader:
    """Turns raw cases into cases; notes everything that is wrong in them."""

    def __init__(
        self,
        graders: Graders,
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
        self.warnings = CaseWarnings(strict=strict)
        self.assertions = AssertionReader(graders, Dialect.SUITE, self.warnings)
        self.ids = UniqueIds("duplicate case id: {}")
        self._variables = variables
        self._folder = graders.folder
        self._primary_output = primary_output
        self._of_suite: tuple[Assertion, ...] = ()

    def read_suite_assertions(self, listed: object, problems: Problems) -> None:
        """Take the suite's own assertions, which every case has after its own."""
        if isinstance(listed, list | tuple):
            self._of_suite = self._read_all(listed, ("assertions",), problems)

    def read(self, value: Any, loc: Loc, problems: Problems, *, marked: bool = True) -> Case | None:
        """Return the case at `loc`, or note every mistake in it and return None."""
        before = problems.count
        if marked and not self._verbatim:
            value = interpolate(value, self._variables, loc, problems)
            value = read_named_texts(value, InputOrigin(self._folder, loc, problems))
        raw: Any = with_snake_keys(value, _KEYS)
        problems.check_shape(raw, SuiteCase, loc)
        if not isinstance(raw, dict):
            return None
        raw = cast("SuiteCase", raw)
        self.ids.note(raw.get("id"), loc, problems)
        self.warnings.add_replaced(f"'{raw.get('id')}'", loc, problems)
        assertions = self._assertions(raw, loc, problems)
        fixture = self._fixture(raw.get("fixtures"), (*loc, "fixtures"), problems)
        if problems.count > before:
            return None
        case = Case(
            id=raw["id"],
            input=raw.get("input"),
            assertions=assertions,
            fixture=fixture,
            expected_output=raw.get("expected_output"),
            criteria=raw.get("criteria"),
            tags=tuple(raw.get("tags", ())),
            metadata=raw.get("metadata") or {},
        )
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
            reason = "no 'assertions': it asserts nothing"
            self.warnings.add(reason, loc, problems, name=f"case '{raw.get('id')}'")
        return (*self._read_all(listed, (*loc, "assertions"), problems), *self._of_suite)

    def _read_all(
        self, listed: Sequence[object], loc: Loc, problems: Problems
    ) -> tuple[Assertion, ...]:
        read = [
            self.assertions.read(entry, (*loc, index), problems)
            for index, entry in enumerate(listed)
        ]
        return tuple(assertion for assertion in read if assertion is not None)

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


FLOW: Final = "flow"
WORKFLOW: Final = "workflow"
_FILES: Final = (".yaml", ".yml", ".json")
# Types of nodes that factories use without registering them (docs/reference/suites.md).
_AGENTS: Final = ("claude.agent", "opencode.agent")
_FORMS: Final = "a flow is module:function, a workflow file, or a target's name"


class Flow(NamedTuple):
    """The targets of a suite, which of them answers, its variants, and which block is checked."""

    targets: Mapping[str, Target]
    default: str | None
    variants: tuple[Variant, ...] = ()
    primary_output: str | None = None


def blocks_of(flow: Flow) -> frozenset[str]:
    """Return the blocks of the workflow that a flow is; none if it is something else."""
    target = None if flow.default is None else flow.targets.get(flow.default)
    if target is None or target.kind != WORKFLOW:
        return frozenset()
    return frozenset(target.options["definition"]["blocks"])


def check_function(
    flow: Flow, written: Any, folder: Path, options: LoadOptions, problems: Problems
) -> None:
    """Note that there is no such function as the suite's flow names, if that is known here.

    `written` is the suite's `flow`. Nothing is imported.
    """
    target = None if flow.default is None else flow.targets.get(flow.default)
    reference = None if target is None else target.options.get("callable")
    if options.allow_imports is None or not isinstance(reference, str):
        return
    if reference in options.local_objects:
        return
    try:
        ImportPolicy((folder, Path.cwd()), options.allow_imports).check(reference)
    except UsageError as error:
        loc: Loc = ("flow",)
        for key in ("flow", "target", "callable"):
            if isinstance(written, Mapping) and key in written:
                loc, written = (*loc, key), written[key]
        problems.add(loc, str(error))


def check_prompts(flow: Flow, inputs: Collection[str], written: Any, problems: Problems) -> None:
    """Note the placeholders in a workflow's prompts that no input of the cases can fill."""
    if not blocks_of(flow):
        return
    from evalcore.workflow.reading import read_definition
    from evalcore.workflow.references import unknown_placeholders

    definition = read_definition(flow.targets[str(flow.default)].options["definition"])
    for mistake in unknown_placeholders(definition, inputs):
        if isinstance(written, Mapping) and "blocks" in written:
            problems.add(("flow", *mistake.loc), mistake.message)
        else:
            problems.add(("flow",), f"{path_text(mistake.loc)}: {mistake.message}")


class FlowReader:
    """Reads `flow` and `variants`; notes what is wrong with them."""

    def __init__(self, targets: Targets, folder: Path, raw: SuiteLevel, problems: Problems) -> None:
        """Take the suite level: its `primary_output` and its own `targets`."""
        self._targets, self._folder, self._problems = targets, folder, problems
        self._primary: str | None = raw.get("primary_output")
        inline: Sequence[Any] = raw.get("targets") or ()
        self._own_names = [entry["name"] for entry in inline]
        self._inline_models = [
            entry["name"] for entry in inline if entry.get("provider") in MODEL_KINDS
        ]

    def read(self, flow: Any, variants: Sequence[SuiteVariant]) -> Flow:
        """Return the flow with its variants; what is wrong is noted."""
        target = self._target(flow, ("flow",))
        if target is None:
            return Flow({}, None, (), self._primary)
        if target.kind in {FLOW, WORKFLOW}:
            names: list[str | None] = [raw.get("provider") for raw in variants]
            if "callable" in target.options:  # its nodes may be of any type
                names += [*self._own_names, *_AGENTS]
            before = target.options.get("providers", {})
            options = self._with_providers(dict(target.options), [*before, *names], ("variants",))
            target = Target(target.name, target.kind, options)
        read_variants = tuple(
            self._variant(raw, target, ("variants", index)) for index, raw in enumerate(variants)
        )
        declared = {name: used for name, used in self._targets.used.items() if name != target.name}
        targets = {target.name: target, **declared}
        return Flow(targets, target.name, read_variants, self._primary)

    def _target(self, flow: Any, loc: Loc) -> Target | None:
        if isinstance(flow, str):
            return self._written(flow.strip(), loc)
        if not isinstance(flow, Mapping):
            return None  # its shape is noted already
        if "flow" in flow:
            return self._wrapped(flow, loc)
        if set(flow) == {"target"} and isinstance(flow["target"], str):
            return self._named(flow["target"], loc)
        if "callable" in flow and "provider" not in flow:
            return self._function(flow, loc)
        if isinstance(flow.get("blocks"), Mapping):
            return self._workflow(flow, loc)
        if isinstance(flow.get("provider"), str):
            return self._inline(flow, loc)
        self._problems.add(loc, f"{_FORMS}, a definition with 'blocks', or {{provider: …}}")
        return None

    def _written(self, flow: str, loc: Loc) -> Target | None:
        if flow in self._targets:
            return self._named(flow, loc)
        if re.fullmatch(CALLABLE, flow):
            return self._function({"callable": flow}, loc)
        if flow.lower().endswith(_FILES):
            return self._file(flow, loc)
        hint = suggest(flow, self._targets.names)
        self._problems.add(loc, f"no target is called '{flow}'.{hint} Note: {_FORMS}")
        return None

    def _wrapped(self, flow: Mapping[str, Any], loc: Loc) -> Target | None:
        """Return the target of `{flow, primary_output}`."""
        written = {snake_case(str(key)): value for key, value in flow.items()}
        if not self._problems.check_shape(written, WrappedFlow, loc):
            return None
        primary = written.get("primary_output") or written.get("primary_output_node_id")
        self._primary = self._primary or primary
        return self._target(flow["flow"], (*loc, "flow"))

    def _named(self, name: str, loc: Loc) -> Target | None:
        self._targets.use(name, loc, self._problems)
        target = self._targets.used.get(name)
        if target is None or self._primary is None:
            return target
        if target.kind == WORKFLOW:
            return Target(name, WORKFLOW, {**target.options, "primary_output": self._primary})
        inner = {"name": name, "kind": target.kind, "options": dict(target.options)}
        return Target(FLOW, "flow", {"target": inner, "primary_output": self._primary})

    def _inline(self, flow: Mapping[str, Any], loc: Loc) -> Target | None:
        name = str(flow.get("name") or FLOW)
        if flow["provider"] not in KINDS:
            hint = suggest(flow["provider"], KINDS)
            message = f"unknown provider '{flow['provider']}'.{hint}"
            self._problems.add((*loc, "provider"), message)
            return None
        self._targets.define(name, {**flow, "name": name}, loc, self._problems)
        return self._named(name, loc)

    def _function(self, flow: Mapping[str, Any], loc: Loc) -> Target | None:
        if not self._problems.check_shape(flow, FunctionFlow, loc):
            return None
        options = {key: value for key, value in flow.items() if value is not None}
        if self._primary is not None:
            options["primary_output"] = self._primary
        return Target(FLOW, "flow", options)

    def _file(self, name: str, loc: Loc) -> Target | None:
        """Return the workflow of a file, which may have an `eval:` section of its own."""
        named = read_named(name, self._folder, loc, self._problems)
        if named is None:
            return None
        path, document, noted = named
        raw = document.value
        if not isinstance(raw, Mapping) or not isinstance(raw.get("blocks"), Mapping):
            self._problems.add(loc, f"{name} is no workflow file: it has no 'blocks'")
            return None
        workflow = {key: value for key, value in raw.items() if key not in {"eval", "evalcore"}}
        workflow = read_named_texts(workflow, InputOrigin(path.parent, (), noted))
        self._problems.include(noted.noted)
        return self._workflow(workflow, loc)

    def _workflow(self, raw: Mapping[str, Any], loc: Loc) -> Target | None:
        from evalcore.workflow.reading import behaviour_of, read_definition

        definition = behaviour_of(as_json(dict(raw)))
        try:
            read_definition(definition)
        except KeyError as error:
            self._problems.add(loc, f"is no sound workflow: {error} is required")
            return None
        except (ValueError, TypeError, AttributeError) as error:
            self._problems.add(loc, f"is no sound workflow: {error}")
            return None
        options: dict[str, Any] = {"definition": definition}
        if self._primary is not None:
            options["primary_output"] = self._primary
        souls = (definition.get("souls") or {}).values()
        names = [soul.get("provider") for soul in souls if isinstance(soul, Mapping)]
        return Target(WORKFLOW, WORKFLOW, self._with_providers(options, names, loc))

    def _with_providers(
        self, options: dict[str, Any], names: Iterable[object], loc: Loc
    ) -> dict[str, Any]:
        """Return the options with those targets as providers that are named, or the suite's own."""
        providers: dict[str, Any] = {}
        for name in dict.fromkeys([*names, *self._inline_models]):
            if isinstance(name, str) and name in self._targets:
                self._targets.use(name, loc, self._problems)
                target = self._targets.used.get(name)
                if target is not None:
                    providers[name] = {"kind": target.kind, "options": dict(target.options)}
        return {**options, "providers": providers} if providers else options

    def _variant(self, raw: SuiteVariant, target: Target, loc: Loc) -> Variant:
        """Return the variant; its provider and model stand where its target's kind looks."""
        try:
            config: dict[str, Any] = as_json(raw.get("config") or {})
        except TypeError as error:
            self._problems.add((*loc, "config"), f"holds a value that JSON cannot: {error}")
            config = {}
        parts = {"provider": raw.get("provider"), "model": raw.get("model")}
        own = {key: value for key, value in parts.items() if value is not None}
        named, provider = raw.get("target"), own.get("provider", "")
        if named is None and target.kind not in {FLOW, WORKFLOW} and provider in self._targets:
            named = own.pop("provider")
        if named is not None:
            self._targets.use(named, (*loc, "target"), self._problems)
            target = self._targets.used.get(named, target)
        if target.kind == FLOW:
            laid = {**own, **({"config": config} if config else {})}
        elif target.kind == WORKFLOW:
            laid = self._over_workflow(own, config, loc)
        else:
            if own.get("provider") == target.kind:
                del own["provider"]
            laid = {**config, **own}
        variant = Variant(raw["id"], named, laid, tuple(raw.get("tags", ())))
        if target.kind in {FLOW, WORKFLOW}:
            self._targets.refuse_literals(config, (*loc, "config"), self._problems)
            return variant
        if "provider" in own:
            message = f"target '{target.name}' is of kind '{target.kind}'; name a target here"
            self._problems.add((*loc, "provider"), message)
        else:
            self._targets.use_variant(target.name, variant, (*loc, "config"), self._problems)
        return variant

    def _over_workflow(
        self, own: Mapping[str, Any], config: Mapping[str, Any], loc: Loc
    ) -> dict[str, Any]:
        """Return what is laid over a workflow: fields of every soul, parts of it."""
        laid: dict[str, Any] = {}
        for key, value in config.items():
            snake = snake_case(key)
            if snake in PARTS | SOUL_KEYS:
                laid[snake] = value
            else:
                hint = suggest(snake, PARTS | SOUL_KEYS)
                self._problems.add((*loc, "config", key), f"unknown key '{key}'.{hint}")
        return {**laid, **own}


_SHARED: Final = ("variants", *fields_of(SharedKeys))


def load_suite_file(document: Document, path: Path, options: LoadOptions) -> Suite:
    """Return the suite of a file; raise `LoadError` with every mistake in it."""
    raw = document.value
    source = Source(document.file, str(path.resolve().parent), document.sha256)
    problems = Problems(document.file, document.locate)
    if not isinstance(raw, dict):
        problems.add((), "a suite file is a mapping with 'name', 'flow', 'cases' and 'variants'")
        problems.raise_if_any()
    return read_suite(raw, source, options, problems)


def read_suite(
    raw: dict[str, Any],
    source: Source,
    options: LoadOptions,
    problems: Problems,
    *,
    verbatim: bool = False,
) -> Suite:
    """Return the suite that a mapping writes; raise `LoadError` with every mistake in it.

    `verbatim` leaves `${{ … }}` in its own texts as it is.
    """
    folder = Path(source.folder)
    variables = variables_for(folder, options)
    raw = with_snake_keys(raw, fields_of(SuiteLevel))
    cases = raw.pop("cases", None)
    if isinstance(raw.get("variants"), list):
        keys = fields_of(SuiteVariant)
        raw["variants"] = [with_snake_keys(variant, keys) for variant in raw["variants"]]
    if not verbatim:
        raw = interpolate(raw, variables, (), problems)
        raw = read_named_texts(raw, InputOrigin(folder, (), problems))
    sound: SuiteLevel = problems.sound_part(raw, SuiteLevel)
    targets = Targets(
        sound.get("targets"),
        folder,
        variables,
        problems,
        in_file=not verbatim,
        strict=options.strict,
    )
    level = _SuiteLevelReader(raw, sound, options, problems)
    flow = level.flow(targets, folder)
    graders = Graders(folder, targets, options.file_rules)
    graders.use_suites(level.section, problems, level.loc)
    reader = CaseReader(
        graders,
        variables,
        primary_output=flow.primary_output,
        blocks=blocks_of(flow),
        strict=options.strict,
        verbatim=verbatim,
    )
    reader.read_suite_assertions(raw.get("assertions"), problems)
    selection = Selection(options)
    definition = level.definition(source, flow, graders)
    versions: list[DatasetSource] = []
    files = NamedFiles(folder, sound.get("columns", {}), options.store, versions)
    spool, collectors, absent, unjudged = spool_rows(
        _raw_cases(cases, files, problems),
        reader.read,
        selection,
        [problems, *([targets.file_problems] if targets.file_problems else [])],
        noun="case",
        references=graders.reference_fields,
        rules=RowRules(declared_types(sound)),
    )
    check_required_cases(definition.policy, reader.ids.names, problems, level.loc("gates"))
    if reader.executes:
        check_function(flow, sound.get("flow"), folder, options, problems)
        check_prompts(flow, reader.inputs, sound.get("flow"), problems)
    targets.explain(collectors)
    raise_all(collectors)
    warnings = [*targets.warnings, *reader.warnings.texts, *selection.finish(problems.file)]
    definition = replace(definition, absent_fields=absent, datasets=tuple(versions))
    definition = choose_variants(_with_targets(definition, targets, flow, graders), options)
    warnings += unjudged.warnings(definition, strict=options.strict)
    return Suite(definition, spool, tuple(warnings))


def _with_targets(
    definition: SuiteDefinition, targets: Targets, flow: Flow, graders: Graders
) -> SuiteDefinition:
    """Return the definition with every target in use: judges that only cases name are read now."""
    return replace(definition, targets={**targets.used, **flow.targets}, judge=graders.default)


def _raw_cases(cases: Any, files: NamedFiles, problems: Problems) -> Iterator[RawTest]:
    if cases is None:
        problems.add(("cases",), "is required: a list of cases, or the path of one")
        return iter(())
    rows = suite_tests(cases, ("cases",), files, problems, noun="case")
    # Cases in files of their own are data: `${{ … }}` in them is text.
    return (row if row.problems is problems else row._replace(marked=False) for row in rows)


class _SuiteLevelReader:
    """What the suite level says, together with what the caller lays over it.

    `section` is `evalcore:` with the suite's own keys, which are the same under their own names.
    """

    def __init__(
        self,
        written: Mapping[str, Any],
        raw: SuiteLevel,
        options: LoadOptions,
        problems: Problems,
    ) -> None:
        """Take the level as it is `written`, and its sound part."""
        self._written, self._raw = written, raw
        self._options, self._problems = options, problems
        evalcore = raw.get("evalcore", {})
        own: Any = {key: raw.get(key) for key in _SHARED if raw.get(key) is not None}
        self.section: EvalcoreSection = {**evalcore, **own}
        self._in_evalcore = {key for key in evalcore if key not in own}
        self._settings = SectionReader(self.section, options, problems, self.loc)
        SectionReader(evalcore, options, problems).refuse_both(
            {key: (key, value) for key, value in own.items()}
        )
        if "threshold" in evalcore:
            message = (
                "has no effect on a suite: write the gate {gate: score_at_least, threshold: …}"
            )
            problems.add(("evalcore", "threshold"), message)
        if not self.section.get("name") and "name" not in written:
            problems.add(("name",), "is required")

    def loc(self, key: str) -> Loc:
        """Return where a key of the section stands."""
        return ("evalcore", key) if key in self._in_evalcore else (key,)

    @property
    def _variants(self) -> Any:
        """The variants as they are written; a suite without any has the unchanged one."""
        if "variants" in self._written or "variants" in self.section:
            return self.section.get("variants", ())
        return [{"id": DEFAULT_VARIANT.id}]

    def flow(self, targets: Targets, folder: Path) -> Flow:
        """Return the flow with its variants; without any sound flow, only what is known."""
        reader = FlowReader(targets, folder, self._raw, self._problems)
        variants = cast("Sequence[SuiteVariant]", self._variants)
        name = targets.chosen(self._options, self._problems.file)
        flow = self._raw.get("flow") if name is None else {"target": name}
        return reader.read(flow, variants)

    def definition(self, source: Source, flow: Flow, graders: Graders) -> SuiteDefinition:
        """Return everything but the cases; note what is wrong in it."""
        # The default gate: no regressions; all pass where there is no baseline.
        compared = self.section.get("baseline") is not None or self._options.baseline is not None
        gate = NoRegressions().spec if compared else PassRate(1.0).spec
        policy = self._settings.policy(ScoreRule.BLOCKS, (gate,), None)
        scorers = self._scorers(graders)
        ids = UniqueIds("duplicate variant id: {}")
        for index, variant in enumerate(self._variants):
            ids.note(variant["id"], (*self.loc("variants"), index), self._problems)
        return self._settings.definition(
            Format.SUITE,
            source,
            Path(source.path),
            policy,
            targets=flow.targets,
            default_target=flow.default,
            variants=flow.variants or (DEFAULT_VARIANT,),
            baseline=self._settings.baseline(ids.names),
            scorers=scorers,
        )

    def _scorers(self, graders: Graders) -> tuple[ScorerSpec, ...]:
        """Return the scorers; note wrong ones and those that would share a name."""
        scorers: dict[str, ScorerSpec] = {}
        for index, raw in enumerate(self._raw.get("scorers", ())):
            loc: Loc = ("scorers", index)
            try:
                scorer = parse_scorer(raw)
            except ParameterError as error:
                self._problems.add(loc, str(error))
                continue
            if scorer.name in scorers:
                message = f"another scorer is called '{scorer.name}'; give this one a 'name'"
                self._problems.add(loc, message)
            scorers[scorer.name] = scorer
            judge = scorer.params.get("judge")
            if judge is not None or scorer.kind == "llm_judge":
                graders.use(judge, loc, self._problems)
        return tuple(scorers.values())


def suite_file_schema() -> dict[str, Any]:
    """Return the file's schema; its own keys may be in camelCase.

    Of assertions in the words of other formats only the type is checked here.
    """
    schema = adapter(SuiteFile).json_schema()
    definitions = schema["$defs"]
    own = assertion_schema(Dialect.SUITE, definitions)
    other = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"anyOf": [{"enum": list(other_types())}, {"pattern": "custom:"}]}},
    }
    definitions["Assertion"] = {"anyOf": [own, other]}
    listed = {"type": "array", "items": {"$ref": "#/$defs/Assertion"}}
    for shape in (schema, definitions["SuiteCase"]):
        shape["properties"]["assertions"] = {"anyOf": [listed, {"type": "null"}]}
    for shape in (schema, *definitions.values()):
        _allow_camel_case(shape)
    schema["$defs"] = definitions
    return schema


def _allow_camel_case(shape: dict[str, Any]) -> None:
    """Let the keys of an object be written in camelCase, too."""
    properties = shape.get("properties", {})
    humps = {name: camel_case(name) for name in properties if "_" in name}
    properties |= {camel: properties[name] for name, camel in humps.items()}
    required = shape.get("required", [])
    either = [
        {"anyOf": [{"required": [name]}, {"required": [humps[name]]}]}
        for name in required
        if name in humps
    ]
    if either:
        shape["required"] = [name for name in required if name not in humps]
        shape["allOf"] = either
