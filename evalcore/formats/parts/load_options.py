"""What the caller lays over a suite file: filters, gates, thresholds, the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from evalcore.model.gate import GateSpec
from evalcore.model.suite import FILE_RULES
from evalcore.settings import Settings


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
    known here which functions there are. Without `to_run` the file is only checked: what can be run
    by AgentV alone is a warning. `local_objects` are the references to functions of the program
    that defines the suite, which no module has. `option_names` are what the caller calls the
    command line's flags, for messages. `script` is the script of script suites. `stop_when_decided`
    ends a run when its sequential gates are decided. `auto_iterations` adds iterations, up to
    `iterations`, until they are. `file_rules` are the rules by which the file is read: those of the
    run that is graded again.
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
    local_objects: frozenset[str] = frozenset()
    script: str | None = None
    stop_when_decided: bool | None = None
    auto_iterations: bool = False
    file_rules: int = FILE_RULES
    to_run: bool = True
    option_names: Mapping[str, str] = field(default_factory=dict)

    def configured(
        self, settings: Settings, environment: Mapping[str, str], store: str | None = None
    ) -> LoadOptions:
        """Return the options with what the configuration lets a suite read.

        That are environment variables, and tests below the store: `store`, else the configured one.
        """
        return replace(
            self,
            readable_names=frozenset(settings.readable_names),
            environment=environment,
            datasets=(store or settings.store, *settings.allow_datasets),
        )

    def called(self, flag: str) -> str:
        """Return what the caller calls a flag of the command line, such as `--case`."""
        return self.option_names.get(flag, flag)
