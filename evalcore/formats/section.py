"""The `evalcore:` section of every format, and the shapes that several formats share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Required

from pydantic import ConfigDict, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.formats.documents import Document, as_json
from evalcore.formats.options import LoadOptions
from evalcore.gates.builtin import Errors, RequiredCases
from evalcore.gates.registry import GATES, gate_schema, parse_gate
from evalcore.model.annotation import AfterDeadline, AnnotationPolicy
from evalcore.model.evidence import LARGEST
from evalcore.model.iterations import Iterations, parse_iterations
from evalcore.model.run import LITERAL_ADDRESS, VARIABLE_NAME, GateSpec, NotifyOn, NotifyPolicy
from evalcore.model.suite import (
    ErrorPolicy,
    EvidencePolicy,
    Format,
    Limits,
    Policy,
    ProviderLimits,
    Reducer,
    ScoreRule,
    Source,
    SuiteDefinition,
    TruncatedPolicy,
)
from evalcore.model.target import DEFAULT_VARIANT, Variant
from evalcore.problems import Problems
from evalcore.shapes import (
    Count,
    Measure,
    ParameterError,
    Repetitions,
    Share,
    Text,
    Weight,
    parameters_of,
    text_or_mapping,
)
from evalcore.wording import Loc, suggest, there_are

Reducers = Literal[
    "mean",
    "median",
    "min",
    "max",
    "pass_at_k",
    "pass_all_k",
    "at_least_k",
    "confidence_interval",
]

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
OPEN = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class _GateSchema:
    """The JSON Schema of a gate, made from the classes of gates; `gates.registry` reads gates."""

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return gate_schema()


WrittenGate = Annotated[Any, _GateSchema()]


_Tokens = Annotated[int, Field(ge=0, le=LARGEST)]


@with_config(STRICT)
class MetricsShape(TypedDict, total=False):
    """Measures that a fixture carries: milliseconds, US dollars, tokens."""

    latency_ms: Measure
    ttft_ms: Measure
    cost_usd: Measure
    input_tokens: _Tokens
    output_tokens: _Tokens
    cached_tokens: _Tokens
    cache_write_tokens: _Tokens
    cache_write_1h_tokens: _Tokens
    input_audio_tokens: _Tokens
    reasoning_tokens: _Tokens
    output_audio_tokens: _Tokens
    batch_tokens: _Tokens


@with_config(STRICT)
class MeasuredFixture(TypedDict, total=False):
    """A given output together with its measures."""

    output: Required[str]
    metrics: MetricsShape


Fixture = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[MeasuredFixture, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


@with_config(STRICT)
class VariantShape(TypedDict, total=False):
    """A small named change to the target's configuration."""

    id: Required[Text]
    target: Text
    config: dict[str, Any]
    tags: list[str]


@with_config(STRICT)
class ProviderLimitsShape(TypedDict, total=False):
    """What a provider takes, over all workers."""

    requests_per_minute: Annotated[float, Field(gt=0)]
    tokens_per_minute: Annotated[float, Field(gt=0)]
    max_concurrency: Count


@with_config(STRICT)
class LimitsShape(TypedDict, total=False):
    """Bounds of a run: of an item (`timeout_s`), of the whole (budgets), of each provider."""

    concurrency: Count
    timeout_s: Annotated[float, Field(gt=0)]
    max_cost_usd: Weight
    max_tokens: Annotated[int, Field(ge=0)]
    max_duration_s: Annotated[float, Field(gt=0)]
    providers: dict[str, ProviderLimitsShape]


@with_config(STRICT)
class NotifyShape(TypedDict, total=False):
    """Who is told of a decision: names of variables that hold Apprise addresses; and when."""

    to: Required[Annotated[list[Text], Field(min_length=1)]]
    on: Literal["change", "failure", "always"]


@with_config(STRICT)
class AnnotationShape(TypedDict, total=False):
    """How long people have to answer, such as `48h` or `3d`, and what follows if they do not."""

    deadline: Required[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}[mhdw]$")]]
    then: Literal["inconclusive", "fail"]


@with_config(STRICT)
class SharedKeys(TypedDict, total=False):
    """Keys of the section that a suite file also has as its own."""

    name: Text
    baseline: Text | None
    iterations: Repetitions
    reducer: Reducers
    k: Count
    gates: list[WrittenGate]
    errors: Literal["fail", "zero", "exclude"]
    max_error_share: Share
    truncated: Literal["keep", "error"]
    limits: LimitsShape
    tags: list[str]


@with_config(STRICT)
class EvalcoreSection(SharedKeys, total=False):
    """What evalcore adds to a format: repetitions, gates, policies."""

    variants: Annotated[list[VariantShape], Field(min_length=1)]
    threshold: Share
    cluster: Text
    stop_when_decided: bool
    notify: NotifyShape
    annotation: AnnotationShape
    judge: Text
    evidence: Literal["full", "answers"]


class UniqueIds:
    """Remembers where each id stands first, and notes every further one."""

    def __init__(self, message: str, key: str = "id") -> None:
        """Take the message of a duplicate, `{}` standing for the id, and the key of the ids."""
        self._message = message
        self._key = key
        self._first: dict[str, tuple[Problems, Any]] = {}

    @property
    def names(self) -> KeysView[str]:
        """The ids so far."""
        return self._first.keys()

    def add(self, names: Iterable[str], problems: Problems) -> None:
        """Remember ids of which none is there yet."""
        self._first.update(dict.fromkeys(names, (problems, (self._key,))))

    def note(self, name: object, loc: Loc, problems: Problems, *, key: str | None = None) -> None:
        """Remember the id of what stands at `loc`; note it if another has it.

        What is no text or empty is a mistake of its shape, and no id. `key` is that of this id
        where it is not that of the others.
        """
        if not isinstance(name, str) or not name:
            return
        path = (*loc, key or self._key)
        if name in self._first:
            problems.add(path, self._message.format(name) + self._first_place(name, problems))
        else:
            # The line of a row is known now only.
            self._first[name] = problems, problems.locate(loc) if problems.cheap else path

    def _first_place(self, name: str, problems: Problems) -> str:
        """Return ` (first at line 3 of other.yaml)`, as far as it is known."""
        collector, position = self._first[name]
        line = position if collector.cheap else collector.locate(position)
        other = "" if collector.file == problems.file else f" of {collector.file}"
        return f" (first at line {line}{other})" if line else other and f" (first{other})"


_MAX_LISTED = 20


def check_required_cases(
    policy: Policy, case_ids: Iterable[str], problems: Problems, loc: Loc = ("evalcore", "gates")
) -> None:
    """Note each case that a gate requires and that is not among the suite's `case_ids`."""
    ids: frozenset[str] | None = None
    for index, gate in enumerate(policy.gates):
        for case_id in gate.params["case_ids"] if gate.gate == RequiredCases.gate else ():
            ids = frozenset(case_ids) if ids is None else ids
            if case_id not in ids:
                message = f"gate 'required_cases': no case has the id '{case_id}'."
                problems.add((*loc, index), message + suggest(case_id, ids, most=_MAX_LISTED))


_UNIT_S: Final = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def in_evalcore(key: str) -> Loc:
    """Return where a key of the section stands in a format that has no other place for it."""
    return ("evalcore", key)


def suite_name(path: Path, *named: str | None) -> str:
    """Return the first of `named` that is not empty, else the file's stem without `.eval`."""
    for name in named:
        if name:
            return name
    return path.name.split(".")[0] if path.name.startswith(".") else path.stem.removesuffix(".eval")


def threshold_of(*thresholds: float | None, default: float) -> float:
    """Return the first threshold that is set: the caller's, the format's, the section's."""
    return next((float(value) for value in thresholds if value is not None), default)


class SectionReader:
    """Reads the section, the caller's options laid over it; notes what is wrong with it."""

    def __init__(
        self,
        section: EvalcoreSection,
        options: LoadOptions,
        problems: Problems,
        loc_of: Callable[[str], Loc] = in_evalcore,
    ) -> None:
        """Take the section, well shaped, and where each of its keys stands."""
        self._section, self._options, self._problems = section, options, problems
        self._loc_of = loc_of

    def refuse_both(self, own: Mapping[str, tuple[str, object]]) -> None:
        """Note each key of `evalcore:` that the format also gives in its own place.

        `own` maps the key to the format's path for it, and to the value that stands there.
        """
        for key, (path, value) in own.items():
            if key in self._section and value is not None:
                message = f"is given here and as '{path}'; remove one of them"
                self._problems.add(in_evalcore(key), message)

    def policy(
        self, score_rule: ScoreRule, default_gates: Sequence[GateSpec], threshold: float | None
    ) -> Policy:
        """Return the policy that the section, the format and the caller make together."""
        section, note = self._section, self._problems.add
        gates = self._gates()
        if self._options.gates:
            gates = self._options.gates
        policy = ErrorPolicy(section.get("errors", ErrorPolicy.FAIL))
        if policy is ErrorPolicy.EXCLUDE and "max_error_share" not in section:
            message = "'exclude' needs 'max_error_share' (a share, 0 to 1)"
            note(self._loc_of("errors"), message)
        chosen = tuple(gates if gates is not None else default_gates)
        has_errors_gate = policy is ErrorPolicy.ZERO or any(g.gate == Errors.gate for g in chosen)
        reducer = Reducer(section.get("reducer", Reducer.MEAN))
        iterations = self._iterations()
        k = section.get("k")
        if reducer is Reducer.AT_LEAST_K and k is None:
            note(self._loc_of("reducer"), "'at_least_k' needs 'k' (how many must pass)")
        if k is not None and k > iterations.most:
            note(self._loc_of("k"), f"is {k}, but {there_are(iterations.most, 'iteration')}")
        return Policy(
            score_rule=score_rule,
            gates=chosen if has_errors_gate else (*chosen, Errors().spec),
            threshold=threshold,
            iterations=iterations.most,
            reducer=reducer,
            k=k,
            errors=policy,
            max_error_share=section.get("max_error_share"),
            cluster=section.get("cluster"),
            stop_when_decided=self._stops() and not iterations.auto,
            auto_iterations=iterations.auto,
            notify=self._notify(),
            annotation=self._annotation(),
            truncated=TruncatedPolicy(section.get("truncated", TruncatedPolicy.KEEP)),
        )

    def _gates(self) -> Sequence[GateSpec] | None:
        if "gates" not in self._section:
            return None
        gates = []
        for index, raw in enumerate(self._section["gates"]):
            try:
                gates.append(parse_gate(raw))
            except ParameterError as error:
                loc = (*self._loc_of("gates"), index)
                self._problems.add(loc, f"{error}{_gate_hint(raw)}")
                gates.append(Errors().spec)  # So that those after it keep their place.
        return gates

    def _notify(self) -> NotifyPolicy | None:
        if "notify" not in self._section:
            return None
        written = self._section["notify"]
        for index, name in enumerate(written["to"]):
            if not VARIABLE_NAME.match(name):
                # The text itself may be an address, which no message repeats.
                loc = (*self._loc_of("notify"), "to", index)
                self._problems.add(loc, LITERAL_ADDRESS)
        return NotifyPolicy(tuple(written["to"]), NotifyOn(written.get("on", NotifyOn.CHANGE)))

    def _annotation(self) -> AnnotationPolicy | None:
        if "annotation" not in self._section:
            return None
        written = self._section["annotation"]
        number, unit = written["deadline"][:-1], written["deadline"][-1]
        then = AfterDeadline(written.get("then", AfterDeadline.INCONCLUSIVE))
        return AnnotationPolicy(int(number) * _UNIT_S[unit], then)

    def _iterations(self) -> Iterations:
        """Return how often each case runs; the caller's `auto` wins over `stop_when_decided`."""
        options = self._options
        if options.iterations is not None:
            return Iterations(options.iterations, options.auto_iterations)
        iterations = parse_iterations(self._section.get("iterations", 1))
        if iterations.auto and self._stops():
            message = "'auto' decides after whole iterations; remove 'stop_when_decided'"
            self._problems.add(self._loc_of("iterations"), message)
        return iterations

    def _stops(self) -> bool:
        chosen = self._options.stop_when_decided
        return self._section.get("stop_when_decided", False) if chosen is None else chosen

    def limits(self) -> Limits:
        """Return the bounds of the run; the caller's concurrency wins."""
        limits: Any = self._section.get("limits", {})
        providers = {
            name: ProviderLimits(**bounds) for name, bounds in limits.get("providers", {}).items()
        }
        concurrency = self._options.concurrency or limits.get("concurrency")
        return Limits(**{**limits, "concurrency": concurrency, "providers": providers})

    def definition(
        self,
        format_: Format,
        source: Document | Source,
        path: Path,
        policy: Policy,
        *,
        name: str | None = None,
        **own: Any,
    ) -> SuiteDefinition:
        """Return a definition with what every format takes from the section, and its `own`."""
        if isinstance(source, Document):
            source = Source(source.file, str(path.resolve().parent), source.sha256)
        section = self._section
        shared: dict[str, Any] = {
            "limits": self.limits(),
            "evidence": EvidencePolicy(section.get("evidence", EvidencePolicy.FULL)),
            "tags": tuple(section.get("tags", ())),
            "file_rules": self._options.file_rules,
        }
        return SuiteDefinition(
            name=suite_name(path, section.get("name"), name),
            format=format_,
            source=source,
            policy=policy,
            **{**shared, **own},
        )

    def variants(self) -> tuple[Variant, ...]:
        """Return the variants of the section, or the one unchanged variant."""
        written = self._section.get("variants", ())
        ids = UniqueIds("duplicate variant '{}'")
        for index, raw in enumerate(written):
            ids.note(raw["id"], (*self._loc_of("variants"), index), self._problems)
        variants = {
            raw["id"]: Variant(
                id=raw["id"],
                target=raw.get("target"),
                config=as_json(raw.get("config", {})),
                tags=tuple(raw.get("tags", ())),
            )
            for raw in written
        }
        return tuple(variants.values()) or (DEFAULT_VARIANT,)

    def baseline(self, variants: Collection[str]) -> str | None:
        """Return the variant that is the baseline; note one that is none of the `variants`."""
        baseline = self._section.get("baseline")
        if baseline is not None and baseline not in variants:
            message = f"no variant is called '{baseline}'.{suggest(baseline, variants)}"
            self._problems.add(self._loc_of("baseline"), message)
        return baseline


def _gate_hint(raw: object) -> str:
    """Return how to write `pass_rate: 0.9` or `name: pass_rate`."""
    if not isinstance(raw, Mapping) or "gate" in raw:
        return ""
    for name in (*raw, raw.get("name")):
        if isinstance(name, str) and name in GATES:
            parameters = "".join(f", {key}: …" for key in list(parameters_of(GATES[name]))[:1])
            return f", here {{gate: {name}{parameters}}}"
    return ", such as {gate: pass_rate, threshold: 0.9}"
