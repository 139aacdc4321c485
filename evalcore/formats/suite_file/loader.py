"""Load suite files: cases × variants, baseline, scorers, gates (docs/reference/suites.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from evalcore.checks.scorers import ScorerSyntaxError, parse_scorer
from evalcore.formats.documents import Document, Renames
from evalcore.formats.graders import Graders
from evalcore.formats.options import LoadOptions, Selection, choose_variants
from evalcore.formats.rows import RawTest
from evalcore.formats.section import EvalcoreSection, SectionReader, UniqueIds, check_required_cases
from evalcore.formats.sources import (
    DataRows,
    NamedFiles,
    RowRules,
    declared_types,
    spool_rows,
    suite_tests,
)
from evalcore.formats.suite_file.cases import CaseReader
from evalcore.formats.suite_file.flow_reader import (
    Flow,
    FlowReader,
    blocks_of,
    check_function,
    check_prompts,
)
from evalcore.formats.suite_file.shapes import SuiteLevel, SuiteVariant
from evalcore.formats.targets import Targets
from evalcore.formats.test_file.input_messages import (
    InputOrigin,
    read_named_texts,
    read_workflow_texts,
)
from evalcore.formats.variables import interpolate, variables_for
from evalcore.gates.builtin import PassRate
from evalcore.gates.comparing import NoRegressions
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems, raise_all
from evalcore.mistakes.shape_lookup import fields_of
from evalcore.model.suite import (
    DatasetSource,
    Format,
    Policy,
    ScorerSpec,
    ScoreRule,
    Source,
    Suite,
    SuiteDefinition,
)
from evalcore.model.target import DEFAULT_VARIANT

_SHARED = (
    "name",
    "variants",
    "baseline",
    "iterations",
    "reducer",
    "k",
    "gates",
    "errors",
    "max_error_share",
    "truncated",
    "limits",
    "tags",
)


def load_suite_file(document: Document, path: Path, options: LoadOptions) -> Suite:
    """Return the suite of a file; raise `LoadError` with every mistake in it."""
    raw = document.value
    source = Source(document.file, str(path.resolve().parent), document.sha256)
    renames = Renames()
    problems = Problems(document.file, renames.locate(document.locate))
    if not isinstance(raw, dict):
        problems.add((), "a suite file is a mapping with 'name', 'flow', 'cases' and 'variants'")
        problems.raise_if_any()
    return read_suite(raw, source, options, problems, renames)


def read_suite(
    raw: dict[str, Any],
    source: Source,
    options: LoadOptions,
    problems: Problems,
    renames: Renames,
    *,
    verbatim: bool = False,
) -> Suite:
    """Return the suite that a mapping writes; raise `LoadError` with every mistake in it.

    `verbatim` leaves `${{ … }}` in its own texts as it is.
    """
    folder = Path(source.folder)
    variables = variables_for(folder, options)
    cases, raw = _renamed(raw, renames)
    if not verbatim:
        raw = interpolate(raw, variables, (), problems)
        origin = InputOrigin(folder, (), problems)
        raw = read_named_texts(raw, origin)
        if isinstance(raw.get("flow"), dict):
            raw["flow"] = read_workflow_texts(raw["flow"], origin.below("flow"))
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
    graders.use_suites({}, level.section, problems)
    reader = CaseReader(
        graders,
        renames,
        variables,
        primary_output=level.primary_output,
        blocks=blocks_of(flow),
        strict=options.strict,
        verbatim=verbatim,
    )
    reader.read_suite_assertions(raw.get("assertions"), problems)
    selection = Selection(options)
    definition = level.definition(source, flow, graders)
    versions: list[DatasetSource] = []
    files = NamedFiles(folder, sound.get("columns", {}), options.datasets, versions)
    spool, collectors, absent, unjudged = spool_rows(
        _raw_cases(cases, files, problems),
        reader,
        selection,
        [problems, *([targets.file_problems] if targets.file_problems else [])],
        noun="case",
        references=graders.reference_fields,
        data=DataRows(RowRules(declared_types(sound))),
    )
    check_required_cases(definition.policy, reader.ids.names, problems, level.loc("gates"))
    if reader.executes:
        check_function(flow, sound.get("flow"), folder, options, problems)
        check_prompts(flow, reader.inputs, sound.get("flow"), problems)
    targets.explain(collectors)
    raise_all(collectors)
    warnings = [*targets.warnings, *reader.warnings, *selection.finish(problems.file)]
    warnings += graders.reference_fields.warnings(problems.file, strict=options.strict)
    definition = replace(definition, absent_fields=absent, datasets=tuple(versions))
    definition = choose_variants(_with_targets(definition, targets, flow, graders), options)
    warnings += unjudged.warnings(definition, strict=options.strict)
    return Suite(definition, spool, tuple(warnings))


def _with_targets(
    definition: SuiteDefinition, targets: Targets, flow: Flow, graders: Graders
) -> SuiteDefinition:
    """Return the definition with every target in use: judges that only cases name are read now."""
    return replace(definition, targets={**targets.used, **flow.targets}, judge=graders.default)


def _renamed(raw: dict[str, Any], renames: Renames) -> tuple[Any, dict[str, Any]]:
    """Return the cases and the rest, both with keys as they are called here."""
    rest = renames.read(raw, (*fields_of(SuiteLevel), "cases"), ())
    cases = rest.pop("cases", None)
    if isinstance(rest.get("variants"), list):
        keys = fields_of(SuiteVariant)
        rest["variants"] = [
            renames.read(variant, keys, ("variants", index))
            for index, variant in enumerate(rest["variants"])
        ]
    return cases, rest


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

    @property
    def primary_output(self) -> str | None:
        """Which block's output is checked, as far as the suite itself says so."""
        primary: object = self._raw.get("primary_output")
        flow = self._raw.get("flow")
        if primary is None and isinstance(flow, Mapping) and "flow" in flow:
            primary = flow.get("primary_output", flow.get("primaryOutput"))
        return primary if isinstance(primary, str) else None

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
        if name is not None:
            return reader.named(name, variants)
        return reader.read(self._raw.get("flow"), variants)

    def _baseline(self) -> str | None:
        """Return the baseline; note duplicate variants and an unknown baseline."""
        variants = self._variants
        ids = UniqueIds("duplicate variant id: {}")
        for index, variant in enumerate(variants):
            ids.note(variant["id"], (*self.loc("variants"), index), self._problems)
        return self._settings.baseline(ids.names)

    def definition(self, source: Source, flow: Flow, graders: Graders) -> SuiteDefinition:
        """Return everything but the cases; note what is wrong in it."""
        policy = self._policy()
        scorers = self._scorers(graders)
        baseline = self._baseline()
        return SuiteDefinition(
            name=str(self.section.get("name")),
            format=Format.SUITE,
            source=source,
            policy=policy,
            targets=flow.targets,
            default_target=flow.default,
            variants=flow.variants or (DEFAULT_VARIANT,),
            baseline=baseline,
            limits=self._settings.limits(),
            tags=tuple(self.section.get("tags", ())),
            scorers=scorers,
            require_calibrated=bool(self.section.get("require_calibrated")),
            evidence=self._settings.evidence(),
            file_rules=self._options.file_rules,
        )

    def _policy(self) -> Policy:
        """Return the policy; the default gate: no regressions, all pass without a baseline."""
        compared = self.section.get("baseline") is not None or self._options.baseline is not None
        gate = NoRegressions().spec if compared else PassRate(1.0).spec
        return self._settings.policy(ScoreRule.BLOCKS, (gate,), None)

    def _scorers(self, graders: Graders) -> tuple[ScorerSpec, ...]:
        """Return the scorers; note wrong ones and those that would share a name."""
        scorers: dict[str, ScorerSpec] = {}
        for index, raw in enumerate(self._raw.get("scorers", ())):
            loc: Loc = ("scorers", index)
            try:
                scorer = parse_scorer(raw)
            except ScorerSyntaxError as error:
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
