"""What every loader does alike: the `evalcore:` section, gates, names, the caller's overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from evalcore.declared.parameters import parameters_of
from evalcore.formats.text.documents import as_json
from evalcore.gates.builtin import Errors
from evalcore.gates.registry import GATES, GateSyntaxError, parse_gate
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import suggest
from evalcore.model.gate import GateSpec
from evalcore.model.suite import (
    ErrorPolicy,
    Limits,
    Policy,
    ProviderLimits,
    Reducer,
    ScoreRule,
)
from evalcore.model.target import DEFAULT_VARIANT, Variant

GATES_LOC: Final[Loc] = ("evalcore", "gates")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the caller lays over a suite file; None and () leave the file's word.

    `baseline` is a variant, or else an earlier run by its id or as a named baseline.
    `strict` turns warnings into mistakes. `readable_names` are the environment variables that a
    suite may read beside those of its nearest `.env` file and `EVAL_*`; `environment` holds the
    variables themselves. `secrets_required` is False where no provider is asked (replay): what a
    secret option refers to need not be set then. `executor` says that the caller executes the cases
    of a workflow file that are not given, by a function of its own. `datasets` are addresses of
    object stores below which files of tests may lie. `allow_imports` are the modules
    that may be imported beside those below the suite's folder and the current one; None: it is not
    known here which functions there are. `option_names` are what the caller calls the command
    line's flags, for messages. `script` is the script of script suites.
    """

    format: str | None = None
    target: str | None = None
    threshold: float | None = None
    iterations: int | None = None
    gates: tuple[GateSpec, ...] = ()
    concurrency: int | None = None
    cases: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    excluded_tags: frozenset[str] = frozenset()
    variants: frozenset[str] = frozenset()
    baseline: str | None = None
    strict: bool = False
    readable_names: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets_required: bool = True
    executor: bool = False
    datasets: tuple[str, ...] = ()
    allow_imports: tuple[str, ...] | None = None
    script: str | None = None
    option_names: Mapping[str, str] = field(default_factory=dict)

    def called(self, flag: str) -> str:
        """Return what the caller calls a flag of the command line, such as `--case`."""
        return self.option_names.get(flag, flag)


def suite_name(path: Path, *named: str | None) -> str:
    """Return the first given name, else the file's stem without `.eval`."""
    for name in named:
        if name:
            return name
    return path.name.split(".")[0] if path.name.startswith(".") else path.stem.removesuffix(".eval")


def policy_of(
    section: Mapping[str, Any],
    options: LoadOptions,
    *,
    score_rule: ScoreRule,
    default_gates: Sequence[GateSpec],
    threshold: float | None,
    problems: Problems,
    gates_loc: Loc = GATES_LOC,
) -> Policy:
    """Return the policy that the `evalcore:` section, the format and the caller make together."""
    gates = _gates(section, problems, gates_loc)
    if options.gates:
        gates = list(options.gates)
    policy = ErrorPolicy(section.get("errors", ErrorPolicy.FAIL))
    if policy is ErrorPolicy.EXCLUDE and "max_error_share" not in section:
        problems.add(("evalcore", "errors"), "'exclude' needs 'max_error_share' (a share, 0 to 1)")
    chosen = tuple(gates if gates is not None else default_gates)
    has_errors_gate = policy is ErrorPolicy.ZERO or any(gate.gate == Errors.gate for gate in chosen)
    reducer = Reducer(section.get("reducer", Reducer.MEAN))
    iterations = options.iterations or section.get("iterations", 1)
    k = section.get("k")
    if reducer is Reducer.AT_LEAST_K and k is None:
        problems.add(("evalcore", "reducer"), "'at_least_k' needs 'k' (how many must pass)")
    if k is not None and k > iterations:
        problems.add(("evalcore", "k"), f"is {k}, but there are only {iterations} iterations")
    return Policy(
        score_rule=score_rule,
        gates=chosen if has_errors_gate else (*chosen, Errors().spec),
        threshold=threshold,
        iterations=iterations,
        reducer=reducer,
        k=k,
        errors=policy,
        max_error_share=section.get("max_error_share"),
        cluster=section.get("cluster"),
    )


def _gates(section: Mapping[str, Any], problems: Problems, loc: Loc) -> list[GateSpec] | None:
    if "gates" not in section:
        return None
    gates = []
    for index, raw in enumerate(section["gates"]):
        try:
            gates.append(parse_gate(raw))
        except GateSyntaxError as error:
            problems.add((*loc, index), f"{error}{_gate_hint(raw)}")
    return gates


def _gate_hint(raw: object) -> str:
    """Return how to write `pass_rate: 0.9` or `name: pass_rate`."""
    if not isinstance(raw, Mapping) or "gate" in raw:
        return ""
    for name in (*raw, raw.get("name")):
        if isinstance(name, str) and name in GATES:
            parameters = "".join(f", {key}: …" for key in list(parameters_of(GATES[name]))[:1])
            return f", here {{gate: {name}{parameters}}}"
    return ", such as {gate: pass_rate, threshold: 0.9}"


def limits_of(section: Mapping[str, Any], options: LoadOptions) -> Limits:
    """Return the bounds of the run; the caller's concurrency wins."""
    limits = section.get("limits", {})
    return Limits(
        concurrency=options.concurrency or limits.get("concurrency"),
        timeout_s=limits.get("timeout_s"),
        max_cost_usd=limits.get("max_cost_usd"),
        max_tokens=limits.get("max_tokens"),
        max_duration_s=limits.get("max_duration_s"),
        providers={
            name: ProviderLimits(**bounds) for name, bounds in limits.get("providers", {}).items()
        },
    )


def variants_of(section: Mapping[str, Any], problems: Problems) -> tuple[Variant, ...]:
    """Return the variants of the `evalcore:` section, or the one unchanged variant."""
    variants: dict[str, Variant] = {}
    first: dict[str, int] = {}
    for index, raw in enumerate(section.get("variants", ())):
        name = raw["id"]
        if name in variants:
            line = problems.locate(("evalcore", "variants", first[name], "id"))
            message = f"duplicate variant '{name}' (first at line {line})"
            problems.add(("evalcore", "variants", index, "id"), message)
        first.setdefault(name, index)
        variants[name] = Variant(
            id=name,
            target=raw.get("target"),
            config=as_json(raw.get("config", {})),
            tags=tuple(raw.get("tags", ())),
        )
    return tuple(variants.values()) or (DEFAULT_VARIANT,)


def baseline_of(
    section: Mapping[str, Any], variants: Sequence[Variant], problems: Problems
) -> str | None:
    """Return the variant that is the baseline; note one that is no variant."""
    baseline: str | None = section.get("baseline")
    names = [variant.id for variant in variants]
    if baseline is not None and baseline not in names:
        message = f"no variant is called '{baseline}'.{suggest(baseline, names)}"
        problems.add(("evalcore", "baseline"), message)
    return baseline


def refuse_both(
    section: Mapping[str, Any],
    own: Mapping[str, str],
    present: Mapping[str, Any],
    problems: Problems,
) -> None:
    """Note each key of `evalcore:` that the format also gives in its own place.

    `own` maps the key to the format's path for it; `present` holds the keys that the format gave.
    """
    for key, path in own.items():
        if key in section and present.get(key) is not None:
            problems.add(("evalcore", key), f"is given here and as '{path}'; remove one of them")
