"""A suite: cases, targets, variants, assertions, gates, policies and quarantined cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple, Protocol

from pydantic import ConfigDict, Field, PositiveInt, with_config

from evalcore.jsonvalues import own_copy
from evalcore.model.annotation import AnnotationPolicy
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import NOTHING, Artifact, Evidence, error_texts, output_values
from evalcore.model.exchange import Turns
from evalcore.model.run import GateSpec, NotifyPolicy
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant

QUARANTINE_FILE: Final = "quarantine.yaml"
READY_AFTER_RUNS: Final = 10
"""How many runs in a row a quarantined case has to pass to be named as ready to return."""


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A case that does not gate up to and including the day `until` (ISO 8601, UTC).

    `suite` is the name of the only suite that the entry is for; None for every suite of the folder.
    """

    case: str
    until: str
    owner: str
    reason: str
    suite: str | None = None

    def has_expired(self, today: date) -> bool:
        """Whether the case gates again."""
        return today > date.fromisoformat(self.until)

    def applies_to(self, suite: str) -> bool:
        """Whether the entry is for the suite of this name."""
        return self.suite is None or self.suite == suite


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The quarantine of one run, as it was frozen when the run was planned."""

    active: tuple[QuarantineEntry, ...] = ()
    expired: tuple[QuarantineEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.active or self.expired)

    @property
    def case_ids(self) -> tuple[str, ...]:
        """The cases that do not gate, each once, in the order of the file."""
        return tuple(dict.fromkeys(entry.case for entry in self.active))

    def entry_of(self, case: str) -> QuarantineEntry | None:
        """Return the entry that keeps a case from gating; None if it gates."""
        return next((entry for entry in self.active if entry.case == case), None)

    def settings(self) -> list[dict[str, Any]]:
        """Return the form in which a manifest holds it."""
        return [
            asdict(entry) | {"expired": has_expired}
            for entries, has_expired in ((self.active, False), (self.expired, True))
            for entry in entries
        ]


NO_QUARANTINE: Final = Quarantine()


def quarantine_on(entries: Sequence[QuarantineEntry], suite: str, today: date) -> Quarantine:
    """Return the quarantine of a suite on a day."""
    own = [(entry, entry.has_expired(today)) for entry in entries if entry.applies_to(suite)]
    return _quarantine(own)


def quarantine_of(settings: Mapping[str, Any]) -> Quarantine:
    """Return the quarantine in the settings of a manifest; runs of earlier versions have none."""
    rows = settings.get("quarantine") or ()
    names = ("case", "until", "owner", "reason", "suite")
    return _quarantine(
        [(QuarantineEntry(*(row[name] for name in names)), row["expired"]) for row in rows]
    )


def _quarantine(entries: Sequence[tuple[QuarantineEntry, bool]]) -> Quarantine:
    return Quarantine(
        tuple(entry for entry, expired in entries if not expired),
        tuple(entry for entry, expired in entries if expired),
    )


FILE_RULES: Final = 4
"""The number of the present rules for reading suite files.

It rises when a file that leaves something out begins to mean something else. 2: `tool-trajectory`
compares arguments with `exact` by default; it was `superset`. 4: a run that evaluated nothing is
an error; differences of latency below 50 ms never count; metadata that a target does not see is no
part of the execution's identity, but of the grading's.
"""


class Format(StrEnum):
    """Names of the formats, wherever one is given."""

    WORKFLOW_HARNESS = "workflow-harness"
    SUITE = "suite"
    SCRIPT_SUITE = "script-suite"
    TEST_FILE = "test-file"
    WORKFLOW_EVALS = "workflow-evals"


class ScoreRule(StrEnum):
    """How an item's assertions become its score and outcome."""

    BLOCKS = "blocks"  # mean of block means; every assertion has to pass
    WEIGHTED = "weighted"  # weighted mean; the score has to reach the item's threshold


class Reducer(StrEnum):
    """How a case's iterations become its score."""

    MEAN = "mean"
    MEDIAN = "median"
    MIN = "min"
    MAX = "max"
    PASS_AT_K = "pass_at_k"
    PASS_ALL_K = "pass_all_k"
    AT_LEAST_K = "at_least_k"
    CONFIDENCE_INTERVAL = "confidence_interval"


class ErrorPolicy(StrEnum):
    """What an item in error does to the scores (docs/reference/engine.md)."""

    FAIL = "fail"
    ZERO = "zero"
    EXCLUDE = "exclude"


class TruncatedPolicy(StrEnum):
    """What becomes of an item whose answer a limit of its author or a content filter cut."""

    KEEP = "keep"  # graded, with a mark
    ERROR = "error"


class EvidencePolicy(StrEnum):
    """What a run keeps of its items beside their results (docs/reference/suite-options.md)."""

    FULL = "full"  # the answers, and the messages of each call
    ANSWERS = "answers"


class Case(NamedTuple):
    """One input, with what is expected of the outcome.

    `fixture` is the answer when it is given: nothing is executed then. `reason_not_executable` is
    the error of an item that can be neither given nor executed. `threshold` is the score that an
    item must reach (rule `weighted`), already resolved from test, command line and suite.
    `block_fixtures` holds outputs of blocks (and what they took) that an executed workflow takes as
    they are.
    `conversation` says that the target answers each user message in turn.
    `workspace` is what its target works in (`model.workspace.spec_of` reads it).
    `turns` says that the turns of the conversation are graded, each by itself.
    `targets` names those that answer it: only their variants are executed; empty means all.
    """

    id: str
    input: Any = None
    assertions: tuple[Assertion, ...] = ()
    fixture: Evidence | None = None
    group: str | None = None
    target: str | None = None
    threshold: float | None = None
    expected_output: Any = None
    criteria: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = NOTHING
    reason_not_executable: str | None = None
    block_fixtures: Evidence | None = None
    workspace: Mapping[str, Any] | None = None
    conversation: bool = False
    turns: Turns | None = None
    targets: tuple[str, ...] = ()


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class ProviderLimits:
    """What a provider takes, over all workers; None means no bound."""

    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0)] | None = None
    max_concurrency: PositiveInt | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a run. Durations in seconds; None means no bound (concurrency: chosen).

    `timeout_s` bounds one item. `max_cost_usd`, `max_tokens` and `max_duration_s` are the run's
    budgets. `providers` has the name of a provider, or of its protocol, as key.
    """

    concurrency: int | None = None
    timeout_s: float | None = None
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_duration_s: float | None = None
    providers: Mapping[str, ProviderLimits] = field(default_factory=dict)

    @property
    def budgeted(self) -> bool:
        """Whether what calls cost is bounded, in dollars or in tokens."""
        return self.max_cost_usd is not None or self.max_tokens is not None


@dataclass(frozen=True, slots=True)
class ScorerSpec:
    """A measurement that is reported beside the results and decides nothing by itself.

    `kind` is a row of `checks.scorers.registry`; `params` are JSON values. `named` says that the
    suite gives the name; a custom scorer may have another one otherwise.
    """

    name: str
    kind: str
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    named: bool = True


@dataclass(frozen=True, slots=True)
class Source:
    """Where a suite came from: the file as it was named, its absolute folder, its SHA-256."""

    path: str
    folder: str
    sha256: str


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """The version of a dataset that a suite's cases came from, and the SHA-256 of its cases."""

    name: str
    version: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Policy:
    """How results become a decision: repetitions, reducer, error policy, gates.

    `stop_when_decided`: the cases run in a random order until the sequential gates are decided.
    `auto_iterations`: all cases run again, up to `iterations` times, until they are.
    `truncated`: what becomes of items whose answer a limit of the author's or a filter cut.
    `stop_on_error`: once an item is in error, those that a process has not begun are skipped.
    """

    score_rule: ScoreRule
    gates: tuple[GateSpec, ...]
    threshold: float | None = None
    iterations: int = 1
    reducer: Reducer = Reducer.MEAN
    k: int | None = None
    errors: ErrorPolicy = ErrorPolicy.FAIL
    max_error_share: float | None = None
    cluster: str | None = None
    stop_when_decided: bool = False
    auto_iterations: bool = False
    notify: NotifyPolicy | None = None
    annotation: AnnotationPolicy | None = None
    stop_on_error: bool = False
    truncated: TruncatedPolicy = TruncatedPolicy.KEEP

    @property
    def ends_when_decided(self) -> bool:
        """Whether a run may end before all of its items are executed."""
        return self.stop_when_decided or self.auto_iterations

    @property
    def iterations_of_score(self) -> int | None:
        """How many iterations of a case have to count for a score; None if one is enough."""
        return self.k if self.reducer in {Reducer.PASS_AT_K, Reducer.PASS_ALL_K} else None

    @property
    def each_iteration_passes(self) -> bool:
        """Whether a case passes only if each of its iterations does."""
        if self.reducer in {Reducer.MEAN, Reducer.MEDIAN}:
            return self.score_rule is not ScoreRule.WEIGHTED
        return self.reducer in {Reducer.MIN, Reducer.PASS_ALL_K}


@dataclass(frozen=True, slots=True)
class SuiteDefinition:
    """A suite without its cases: what the plan keeps once, and every worker reads.

    `baseline` is a variant. `baseline_run` is what the caller named instead: an earlier run, by its
    id or as a named baseline. `dropped_baseline` is the variant that filters left out; `filtered`
    says that they left out cases, `part` names the options that left out cases or variants.
    `judge` is the target that judges where neither the assertion nor the target names one.
    `code` has the digests of the code that the suite names (`model.code_names`), as it was planned;
    `executed_code` those under which the evidence was made, where that is an earlier run's.
    `absent_fields` are the fields that `field-accuracy` compares and no case's expected output has;
    None where the cases were not looked through. `datasets` are the versions that cases came from.
    `reuse` says that what earlier runs executed is not executed again. `file_rules` is the number
    of the rules by which its file was read (`FILE_RULES`); plans without it are of the first.
    """

    name: str
    format: Format
    source: Source
    policy: Policy
    targets: Mapping[str, Target] = field(default_factory=dict)
    default_target: str | None = None
    variants: tuple[Variant, ...] = (DEFAULT_VARIANT,)
    baseline: str | None = None
    baseline_run: str | None = None
    dropped_baseline: str | None = None
    filtered: bool = False
    part: tuple[str, ...] = ()
    limits: Limits = Limits()
    tags: tuple[str, ...] = ()
    scorers: tuple[ScorerSpec, ...] = ()
    judge: str | None = None
    evidence: EvidencePolicy = EvidencePolicy.ANSWERS
    code: Mapping[str, str] = field(default_factory=dict)
    executed_code: Mapping[str, str] | None = None
    absent_fields: tuple[str, ...] | None = None
    datasets: tuple[DatasetSource, ...] = ()
    reuse: bool = False
    file_rules: int = 1


class CaseSource(Protocol):
    """Valid cases that can be iterated again and again, always in the same order."""

    def __iter__(self) -> Iterator[Case]:
        """Iterate the cases in their order."""

    def __len__(self) -> int:
        """Return how many there are."""

    def parts(self) -> Iterator[bytes]:
        """Yield the cases as plan parts: compressed JSON lines, `PART_CASES` cases each."""

    def code_names(self) -> frozenset[str]:
        """Return the code that cases name: in assertions, workspaces, attached files."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Everything a run needs. `warnings` are for people and change nothing.

    `quarantine` has the entries of the folder's `quarantine.yaml`. `objects` are functions of this
    process that the suite calls, by their references `local:NAME`; a suite of a file has none.
    """

    definition: SuiteDefinition
    cases: CaseSource
    warnings: tuple[str, ...] = ()
    quarantine: tuple[QuarantineEntry, ...] = ()
    objects: Mapping[str, Any] = NOTHING


BEFORE_S: Final = 60.0
AFTER_S: Final = 30.0


class HookName(StrEnum):
    """When a hook runs: once for a workspace, or for each test in it."""

    BEFORE_ALL = "before_all"
    BEFORE_EACH = "before_each"
    AFTER_EACH = "after_each"
    AFTER_ALL = "after_all"


# What concerns a single test leaves the workspace what it is to the others.
EACH: Final = frozenset({HookName.BEFORE_EACH, HookName.AFTER_EACH})
BEFORE: Final = frozenset({HookName.BEFORE_ALL, HookName.BEFORE_EACH})


@dataclass(frozen=True, slots=True)
class Hook:
    """A program that is told of a workspace; an array runs without a shell.

    `cwd` is relative to the suite's folder, which is the default.
    """

    command: str | tuple[str, ...]
    timeout_s: float
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository in a workspace: `source` is a URL or a folder (`is_local`).

    `checkout` is a commit, a tag or a branch, by default the source's own; `ancestor` counts so
    many first parents back from it.
    """

    path: str
    source: str
    is_local: bool = False
    checkout: str | None = None
    ancestor: int = 0


@dataclass(frozen=True, slots=True)
class WorkspaceSpec:
    """What a workspace is made of.

    `template` is copied; `path` is a folder that is used as it is. `shared` says that tests take
    turns in one workspace; else each work item has its own.
    """

    shared: bool = True
    template: str | None = None
    path: str | None = None
    repos: tuple[Repository, ...] = ()
    hooks: Mapping[HookName, Hook] = field(default_factory=dict)


def spec_of(raw: Mapping[str, Any]) -> WorkspaceSpec:
    """Return what a case's `workspace` (JSON values, as the loader made them) says."""
    hooks = {}
    for name, entry in raw.get("hooks", {}).items():
        command = entry["command"]
        words = tuple(command) if isinstance(command, list | tuple) else command
        hooks[HookName(name)] = Hook(words, entry["timeout_s"], entry.get("cwd"))
    return WorkspaceSpec(
        shared=raw.get("isolation", "shared") == "shared",
        template=raw.get("template"),
        path=raw.get("path"),
        repos=tuple(Repository(**entry) for entry in raw.get("repos", ())),
        hooks=hooks,
    )


def artifact_of(
    evidence: Evidence, case: Case, *, events: tuple[Mapping[str, Any], ...] = ()
) -> Artifact:
    """Return the artifact of some evidence and of the case that it belongs to.

    Its values are its own: what a function changes there is not seen by other functions.
    """
    details = evidence.details
    return Artifact(
        output=evidence.output,
        outputs=own_copy(output_values(evidence)),
        state=own_copy(details.get("state", NOTHING)),
        events=own_copy(events or tuple(details.get("events") or ())),
        metrics=evidence.metrics,
        errors=tuple(error_texts(evidence)),
        calls=own_copy(tuple(details.get("calls") or ())),
        case_id=case.id,
        input=own_copy(case.input),
        expected_output=own_copy(case.expected_output),
    )
