"""What every loader does alike: the `evalcore:` section, gates, names, the caller's overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalcore.formats.problems import Problems
from evalcore.gates.registry import GateSyntaxError, parse_gate
from evalcore.model.gate import GateSpec
from evalcore.model.suite import ErrorPolicy, Limits, Policy, Reducer, ScoreRule
from evalcore.model.target import DEFAULT_VARIANT, Variant

ERRORS = GateSpec("errors")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the caller lays over a suite file; None and () leave the file's word.

    `strict` turns warnings into mistakes. `root` is the folder that file names in messages are
    relative to. `readable_names` are the environment variables that a suite may read beside those
    of its nearest `.env` file and `EVAL_*`; `environment` holds the variables themselves.
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
    strict: bool = False
    readable_names: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)


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
) -> Policy:
    """Return the policy that the `evalcore:` section, the format and the caller make together."""
    gates = _gates(section, problems)
    if options.gates:
        gates = list(options.gates)
    policy = ErrorPolicy(section.get("errors", ErrorPolicy.FAIL))
    if policy is ErrorPolicy.EXCLUDE and "max_error_share" not in section:
        problems.add(("evalcore", "errors"), "'exclude' needs 'max_error_share' (a share, 0 to 1)")
    chosen = tuple(gates if gates is not None else default_gates)
    has_errors_gate = policy is ErrorPolicy.ZERO or any(gate.gate == "errors" for gate in chosen)
    reducer = Reducer(section.get("reducer", Reducer.MEAN))
    iterations = options.iterations or section.get("iterations", 1)
    k = section.get("k")
    if reducer is Reducer.AT_LEAST_K and k is None:
        problems.add(("evalcore", "reducer"), "'at_least_k' needs 'k' (how many must pass)")
    if k is not None and k > iterations:
        problems.add(("evalcore", "k"), f"is {k}, but there are only {iterations} iterations")
    return Policy(
        score_rule=score_rule,
        gates=chosen if has_errors_gate else (*chosen, ERRORS),
        threshold=threshold,
        iterations=iterations,
        reducer=reducer,
        k=k,
        errors=policy,
        max_error_share=section.get("max_error_share"),
    )


def _gates(section: Mapping[str, Any], problems: Problems) -> list[GateSpec] | None:
    if "gates" not in section:
        return None
    gates = []
    for index, raw in enumerate(section["gates"]):
        try:
            gates.append(parse_gate(raw))
        except GateSyntaxError as error:
            problems.add(("evalcore", "gates", index), str(error))
    return gates


def limits_of(section: Mapping[str, Any], options: LoadOptions) -> Limits:
    """Return the bounds of the run; the caller's concurrency wins."""
    limits = section.get("limits", {})
    return Limits(
        concurrency=options.concurrency or limits.get("concurrency"),
        timeout_s=limits.get("timeout_s"),
    )


def variants_of(section: Mapping[str, Any], problems: Problems) -> tuple[Variant, ...]:
    """Return the variants of the `evalcore:` section, or the one unchanged variant."""
    variants: dict[str, Variant] = {}
    for index, raw in enumerate(section.get("variants", ())):
        if raw["id"] in variants:
            problems.add(("evalcore", "variants", index, "id"), f"duplicate variant {raw['id']!r}")
        variants[raw["id"]] = Variant(
            id=raw["id"],
            target=raw.get("target"),
            config=raw.get("config", {}),
            tags=tuple(raw.get("tags", ())),
        )
    baseline = section.get("baseline")
    if baseline is not None and baseline not in variants:
        known = ", ".join(variants) or "there are none"
        problems.add(("evalcore", "baseline"), f"{baseline!r} is not a variant ({known})")
    return tuple(variants.values()) or (DEFAULT_VARIANT,)


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


def selected(case_id: str, tags: Sequence[str], options: LoadOptions) -> bool:
    """Whether the caller's filters (`--case`, `--tag`, `--exclude-tag`) keep the case."""
    if options.cases and case_id not in options.cases:
        return False
    if options.tags and options.tags.isdisjoint(tags):
        return False
    return options.excluded_tags.isdisjoint(tags)
