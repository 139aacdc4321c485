"""Load suite files: cases × variants, baseline, scorers, gates (spec/suite-api.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalcore.checks.scorers.registry import ScorerSyntaxError, parse_scorer
from evalcore.errors import UsageError
from evalcore.formats.assertions.graders import Graders
from evalcore.formats.parts.case_spooling import spool_rows
from evalcore.formats.parts.data_row_rules import declared_types
from evalcore.formats.parts.interpolation import interpolate, variables_for
from evalcore.formats.parts.load_options import (
    LoadOptions,
    limits_of,
    policy_of,
    refuse_both,
)
from evalcore.formats.parts.required_cases import check_required_cases
from evalcore.formats.parts.selection import Selection, choose_variants
from evalcore.formats.parts.targets_file import Targets
from evalcore.formats.suite_file.cases import CaseReader, raw_cases
from evalcore.formats.suite_file.flow_reader import Flow, FlowReader, blocks_of, check_function
from evalcore.formats.suite_file.shapes import SuiteLevel, SuiteVariant
from evalcore.formats.text.camel_case import Renames
from evalcore.formats.text.documents import Document
from evalcore.gates.builtin import PassRate
from evalcore.gates.comparing import NoRegressions
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems, raise_all
from evalcore.mistakes.shape_errors import sound_part
from evalcore.mistakes.shape_lookup import adapter, fields_of
from evalcore.mistakes.wording import suggest
from evalcore.model.suite import (
    Format,
    Policy,
    ScorerSpec,
    ScoreRule,
    Source,
    Suite,
    SuiteDefinition,
)
from evalcore.model.target import DEFAULT_VARIANT, Variant

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
    sound = _sound_level(raw, problems)
    targets = Targets(sound.get("targets"), folder, variables, problems, in_file=not verbatim)
    level = _Level(raw, sound, options, problems)
    flow = level.flow(targets, folder)
    graders = Graders(folder, targets)
    graders.use_suites({}, level.section, problems)
    reader = CaseReader(
        graders,
        renames,
        variables,
        primary_output=level.primary_output,
        blocks=blocks_of(flow),
        strict=options.strict,
        verbatim=verbatim and isinstance(cases, list),
    )
    selection = Selection(options)
    definition = level.definition(source, flow, graders)
    rows = raw_cases(cases, folder, sound.get("columns", {}), problems, options.datasets)
    others = [targets.file_problems] if targets.file_problems else []
    spool, collectors, absent = spool_rows(
        rows,
        reader,
        selection,
        [problems, *others],
        noun="case",
        references=graders.reference_fields,
        declared=declared_types(sound),
    )
    check_required_cases(definition.policy, reader.ids, problems, level.loc("gates"))
    if reader.executes:
        check_function(flow, sound.get("flow"), folder, options, problems)
    targets.explain(collectors)
    raise_all(collectors)
    warnings = [*targets.warnings, *reader.warnings, *selection.finish(problems.file)]
    # Judges that only cases name are known now.
    definition = replace(
        definition,
        targets={**targets.used, **flow.targets},
        judge=graders.default,
        absent_fields=absent,
    )
    return Suite(choose_variants(definition, options), spool, tuple(warnings))


def _renamed(raw: dict[str, Any], renames: Renames) -> tuple[Any, dict[str, Any]]:
    """Return the cases and the rest, both with keys as they are called here."""
    rest = renames.read(raw, (*fields_of(SuiteLevel), "cases"), ())
    cases = rest.pop("cases", None)
    if isinstance(rest.get("variants"), list):
        known = fields_of(SuiteVariant)
        rest["variants"] = [
            renames.read(one, known, ("variants", index))
            for index, one in enumerate(rest["variants"])
        ]
    return cases, rest


def _sound_level(raw: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """Return the suite level without what is wrong in it, which is noted."""
    try:
        adapter(SuiteLevel).validate_python(raw)
    except ValidationError as error:
        wrong = problems.add_invalid(error, raw, SuiteLevel)
        return sound_part(raw, SuiteLevel, wrong)
    return raw


class _Level:
    """What the suite level says, together with what the caller lays over it.

    `section` is `evalcore:` with the suite's own keys, which are the same under their own names.
    """

    def __init__(
        self,
        written: Mapping[str, Any],
        raw: Mapping[str, Any],
        options: LoadOptions,
        problems: Problems,
    ) -> None:
        self._written, self._raw = written, raw
        self._options, self._problems = options, problems
        evalcore: Mapping[str, Any] = raw.get("evalcore", {})
        own = {key: raw[key] for key in _SHARED if raw.get(key) is not None}
        refuse_both(evalcore, {key: key for key in _SHARED}, own, problems)
        self.section: dict[str, Any] = {**evalcore, **own}
        self._in_evalcore = {key for key in evalcore if key not in own}
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
        found = self._raw.get("primary_output")
        flow = self._raw.get("flow")
        if found is None and isinstance(flow, Mapping) and "flow" in flow:
            found = flow.get("primary_output", flow.get("primaryOutput"))
        return found if isinstance(found, str) else None

    def loc(self, key: str) -> Loc:
        return ("evalcore", key) if key in self._in_evalcore else (key,)

    def flow(self, targets: Targets, folder: Path) -> Flow:
        """Return the flow with its variants; without any sound flow, only what is known."""
        reader = FlowReader(targets, folder, self._raw, self._problems)
        written = self.section.get("variants", ())
        name = self._options.target
        if name is not None:
            if name not in targets:
                hint = suggest(name, targets.names) or " None is defined."
                where = f"{self._problems.file}: {self._options.called('--target')}"
                raise UsageError(f"{where}: unknown target '{name}'.{hint}")
            return reader.named(name, written)
        return reader.read(self._raw.get("flow"), written)

    def _variants(self, flow: Flow) -> tuple[tuple[Variant, ...], str | None]:
        """Return the variants and the baseline; note none, duplicates and an unknown baseline."""
        loc = self.loc("variants")
        written = self.section.get("variants", ())
        if "variants" not in self._written and not written:
            self._problems.add(("variants",), "is required: at least one {id: …}")
        first: dict[str, int] = {}
        for index, raw in enumerate(written):
            name = raw["id"]
            if name in first:
                line = self._problems.locate((*loc, first[name], "id"))
                where = "" if line is None else f" (first at line {line})"
                self._problems.add((*loc, index, "id"), f"duplicate variant id: {name}{where}")
            first.setdefault(name, index)
        baseline = self.section.get("baseline")
        if baseline is not None and baseline not in first:
            message = f"no variant is called '{baseline}'.{suggest(baseline, first)}"
            self._problems.add(self.loc("baseline"), message)
        return flow.variants or (DEFAULT_VARIANT,), baseline

    def definition(self, source: Source, flow: Flow, graders: Graders) -> SuiteDefinition:
        """Return everything but the cases; note what is wrong in it."""
        policy = self._policy()
        scorers = self._scorers(graders)
        variants, baseline = self._variants(flow)
        return SuiteDefinition(
            name=str(self.section.get("name")),
            format=Format.SUITE,
            source=source,
            policy=policy,
            targets=flow.targets,
            default_target=flow.default,
            variants=variants,
            baseline=baseline,
            limits=limits_of(self.section, self._options),
            tags=tuple(self.section.get("tags", ())),
            scorers=scorers,
            require_calibrated=bool(self.section.get("require_calibrated")),
        )

    def _policy(self) -> Policy:
        """Return the policy; the default gate: no regressions, all pass without a baseline."""
        compared = self.section.get("baseline") is not None or self._options.baseline is not None
        return policy_of(
            self.section,
            self._options,
            score_rule=ScoreRule.BLOCKS,
            default_gates=(NoRegressions().spec if compared else PassRate(1.0).spec,),
            threshold=None,
            problems=self._problems,
            gates_loc=self.loc("gates"),
        )

    def _scorers(self, graders: Graders) -> tuple[ScorerSpec, ...]:
        """Return the scorers; note wrong ones and those that would share a name."""
        found: dict[str, ScorerSpec] = {}
        for index, raw in enumerate(self._raw.get("scorers", ())):
            try:
                scorer = parse_scorer(raw)
            except ScorerSyntaxError as error:
                self._problems.add(("scorers", index), str(error))
                continue
            if scorer.name in found:
                message = f"another scorer is called '{scorer.name}'; give this one a 'name'"
                self._problems.add(("scorers", index), message)
            found[scorer.name] = scorer
            if scorer.kind == "llm_judge":
                graders.use(scorer.params.get("judge"), ("scorers", index), self._problems)
            elif scorer.params.get("judge") is not None:
                graders.use(scorer.params["judge"], ("scorers", index), self._problems)
        return tuple(found.values())
