"""Load suite files: cases × variants, baseline, scorers, gates (spec/suite-api.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalcore.errors import UsageError
from evalcore.formats.camel_case import Renames
from evalcore.formats.environment import interpolate, variables_for
from evalcore.formats.options import (
    LoadOptions,
    limits_of,
    policy_of,
    refuse_both,
)
from evalcore.formats.positions import Loc
from evalcore.formats.problems import Problems
from evalcore.formats.selection import Selection, choose_variants
from evalcore.formats.shape_errors import sound_part
from evalcore.formats.shapes import adapter, fields_of
from evalcore.formats.source import Document, collector_paused
from evalcore.formats.suite_cases import CaseReader, raw_cases, spool_cases
from evalcore.formats.suite_file_shapes import SuiteLevel, SuiteVariant
from evalcore.formats.suite_flow import Flow, FlowReader, blocks_of
from evalcore.formats.targets_file import Targets
from evalcore.formats.wording import suggest
from evalcore.gates.registry import GateSyntaxError, parse_gate
from evalcore.model.gate import GateSpec
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
from evalcore.scorers.registry import ScorerSyntaxError, parse_scorer

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
    raw = renames.read(raw, (*fields_of(SuiteLevel), "cases"), ())
    cases = raw.pop("cases", None)
    if not verbatim:
        raw = interpolate(raw, variables, (), problems)
    if isinstance(raw.get("variants"), list):
        known = fields_of(SuiteVariant)
        raw["variants"] = [
            renames.read(one, known, ("variants", index))
            for index, one in enumerate(raw["variants"])
        ]
    sound = _sound_level(raw, problems)
    targets = Targets(sound.get("targets"), folder, variables, problems)
    level = _Level(raw, sound, options, problems)
    flow = level.flow(targets, folder)
    reader = CaseReader(
        folder,
        renames,
        variables,
        primary_output=level.primary_output,
        blocks=blocks_of(flow),
        strict=options.strict,
        verbatim=verbatim and isinstance(cases, list),
    )
    selection = Selection(options)
    others = [targets.file_problems] if targets.file_problems else []
    policy = level.policy()
    scorers = level.scorers()
    variants, baseline = level.variants(flow)
    if cases is None:
        problems.add(("cases",), "is required: a list of cases, or the path of one")
    columns = sound.get("columns", {})
    rows = raw_cases([] if cases is None else cases, folder, columns, problems, options.datasets)
    with collector_paused():
        spool = spool_cases(rows, reader, selection, [problems, *others], raises=False)
    level.check_required_cases(policy.gates, reader.ids)
    problems.raise_if_any()
    for other in others:
        other.raise_if_any()
    warnings = [*reader.warnings, *selection.finish(problems.file)]
    definition = SuiteDefinition(
        name=level.name,
        format=Format.SUITE,
        source=source,
        policy=policy,
        targets=flow.targets,
        default_target=flow.default,
        variants=variants,
        baseline=baseline,
        limits=limits_of(level.section, options),
        tags=tuple(level.section.get("tags", ())),
        scorers=scorers,
    )
    return Suite(choose_variants(definition, options), spool, tuple(warnings))


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
    def name(self) -> str:
        """The suite's name."""
        return str(self.section["name"])

    @property
    def primary_output(self) -> str | None:
        """Which block's output is checked, as far as the suite itself says so."""
        found = self._raw.get("primary_output")
        flow = self._raw.get("flow")
        if found is None and isinstance(flow, Mapping) and "flow" in flow:
            found = flow.get("primary_output", flow.get("primaryOutput"))
        return found if isinstance(found, str) else None

    def _loc(self, key: str) -> Loc:
        return ("evalcore", key) if key in self._in_evalcore else (key,)

    def flow(self, targets: Targets, folder: Path) -> Flow:
        """Return the flow with its variants; without any sound flow, only what is known."""
        reader = FlowReader(targets, folder, self._raw, self._problems)
        written = self.section.get("variants", ())
        name = self._options.target
        if name is not None:
            if name not in targets:
                hint = suggest(name, targets.names) or " None is defined."
                message = f"{self._problems.file}: --target: unknown target '{name}'.{hint}"
                raise UsageError(message)
            return reader.named(name, written)
        return reader.read(self._raw.get("flow"), written)

    def variants(self, flow: Flow) -> tuple[tuple[Variant, ...], str | None]:
        """Return the variants and the baseline; note none, duplicates and an unknown baseline."""
        loc = self._loc("variants")
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
            self._problems.add(self._loc("baseline"), message)
        return flow.variants or (DEFAULT_VARIANT,), baseline

    def policy(self) -> Policy:
        """Return the policy; the default gate: no regressions, all pass without a baseline."""
        default = GateSpec("pass_rate", {"threshold": 1.0, "per_variant": False})
        if self.section.get("baseline") is not None or self._options.baseline is not None:
            default = parse_gate("no_regressions")
        section = {key: value for key, value in self.section.items() if key != "gates"}
        gates = self._gates()
        return policy_of(
            section,
            self._options,
            score_rule=ScoreRule.BLOCKS,
            default_gates=(default,) if gates is None else gates,
            threshold=None,
            problems=self._problems,
        )

    def _gates(self) -> tuple[GateSpec, ...] | None:
        if "gates" not in self.section:
            return None
        gates = []
        for index, raw in enumerate(self.section["gates"]):
            try:
                gates.append(parse_gate(raw))
            except GateSyntaxError as error:
                self._problems.add((*self._loc("gates"), index), str(error))
        return tuple(gates)

    def check_required_cases(self, gates: tuple[GateSpec, ...], known: set[str]) -> None:
        """Note each case that a gate requires and that the suite does not have."""
        for index, gate in enumerate(gates):
            ids = gate.params.get("case_ids", ()) if gate.gate == "required_cases" else ()
            for case_id in ids:
                if case_id not in known:
                    loc = (*self._loc("gates"), index)
                    hint = suggest(case_id, known)
                    message = f"gate 'required_cases': no case has the id '{case_id}'.{hint}"
                    self._problems.add(loc, message)

    def scorers(self) -> tuple[ScorerSpec, ...]:
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
        return tuple(found.values())
