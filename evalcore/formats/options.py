"""What the caller overrides in a suite file, and what its filters keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evalcore.errors import LoadError, NoCaseLeftError, Problem, UsageError
from evalcore.model.run import GateSpec
from evalcore.model.suite import FILE_RULES, SuiteDefinition
from evalcore.settings import Settings
from evalcore.wording import is_unicode, suggest


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the caller lays over a suite file; None and () leave the file's word.

    `baseline` is a variant, or else an earlier run by its id or as a named baseline. `strict` turns
    warnings into mistakes. `readable_names` are the environment variables that a suite may read
    beside those of its nearest `.env` file and `EVAL_*`; `environment` holds the variables
    themselves. `secrets_required` is False where no provider is asked (replay): what a secret
    option refers to need not be set then. `executor` says that the caller executes the cases of a
    workflow file that are not given, by a function of its own. `store` is the address of the run's
    store, whose datasets a suite may name. `allow_imports` are the modules that may be imported
    beside those below the suite's folder and the current one; None: it is not known here which
    functions there are. `local_objects` are the references to functions of the program that defines
    the suite, which no module has. `option_names` are what the caller calls the command line's
    flags, for messages. `script` is the script of script suites. `stop_when_decided` ends a run
    when its sequential gates are decided. `auto_iterations` adds iterations, up to `iterations`,
    until they are. `file_rules` are the rules by which the file is read: those of the run that is
    graded again.
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
    store: str | None = None
    allow_imports: tuple[str, ...] | None = None
    local_objects: frozenset[str] = frozenset()
    script: str | None = None
    stop_when_decided: bool | None = None
    auto_iterations: bool = False
    file_rules: int = FILE_RULES
    option_names: Mapping[str, str] = field(default_factory=dict)

    def configured(
        self, settings: Settings, environment: Mapping[str, str], store: str | None = None
    ) -> LoadOptions:
        """Return the options with what the configuration lets a suite read.

        That are environment variables, and datasets of the store: `store`, else the configured one.
        """
        return replace(
            self,
            readable_names=frozenset(settings.readable_names),
            environment=environment,
            store=store or settings.store,
        )

    @property
    def filters(self) -> dict[str, frozenset[str]]:
        """The filters of cases, by what the caller calls their flags."""
        chosen = {"--case": self.cases, "--tag": self.tags, "--exclude-tag": self.excluded_tags}
        return {self.called(flag): values for flag, values in chosen.items() if values}

    def called(self, flag: str) -> str:
        """Return what the caller calls a flag of the command line, such as `--case`."""
        return self.option_names.get(flag, flag)


MAX_NAMES = 10_000
_LISTED = 20


class Selection:
    """Decides case by case, and returns at the end which filters matched nothing."""

    def __init__(self, options: LoadOptions) -> None:
        self._options = options
        self.active = bool(options.filters)
        self._selected = 0
        self._ids: set[str] = set()
        self._tags: set[str] = set()

    def keeps(self, case_id: str, tags: Sequence[str]) -> bool:
        """Whether the filters keep the case."""
        options = self._options
        if not self.active:
            return True
        self._tags.update(tags)
        if len(self._ids) < MAX_NAMES or case_id in options.cases:
            self._ids.add(case_id)
        if options.cases and case_id not in options.cases:
            return False
        if options.tags and options.tags.isdisjoint(tags):
            return False
        is_selected = options.excluded_tags.isdisjoint(tags)
        self._selected += is_selected
        return is_selected

    def finish(self, file: str) -> list[str]:
        """Return a warning for each filter that matched nothing.

        Raises `NoCaseLeftError` if they leave no case; in strict mode each warning is a
        `UsageError`.
        """
        if not self.active:
            return []
        unmet = list(self._unmet())
        if self._selected and not (unmet and self._options.strict):
            return unmet
        if self._selected:
            raise UsageError("\n".join(f"{file}: {message}" for message in unmet))
        if not unmet:
            written = ", ".join(
                f"{flag} {value}"
                for flag, values in self._options.filters.items()
                for value in sorted(values)
            )
            unmet = [f"the filters leave no case: {written}"]
        raise NoCaseLeftError(file, unmet)

    def _unmet(self) -> Iterator[str]:
        for flag, values in self._options.filters.items():
            is_id = flag == self._options.called("--case")
            what = "case has the id" if is_id else "case has the tag"
            yield from _unknown(flag, what, values, self._ids if is_id else self._tags)


def _unknown(option: str, what: str, chosen: Iterable[str], names: set[str]) -> Iterator[str]:
    for name in sorted(set(chosen) - names):
        hint = suggest(name, names, most=_LISTED) or " There are none."
        yield f"{option}: no {what} '{name}'.{hint}"


def choose_variants(definition: SuiteDefinition, options: LoadOptions) -> SuiteDefinition:
    """Return the definition with only the variants that the caller wants, in the suite's order.

    The caller's baseline replaces the suite's. One that is not among the variants is dropped.
    Raises `UsageError` for an unknown variant, and if the caller's variants lack his baseline.
    """
    definition = _choose_baseline(definition, options)
    part = tuple(options.filters)
    if part:
        definition = replace(definition, filtered=True, part=part)
    if not options.variants:
        return definition
    names = {variant.id for variant in definition.variants}
    flag = options.called("--variant")
    unknown = list(_unknown(flag, "variant is called", options.variants, names))
    if unknown:
        raise UsageError("\n".join(f"{definition.source.path}: {message}" for message in unknown))
    variants = tuple(variant for variant in definition.variants if variant.id in options.variants)
    if len(variants) < len(definition.variants):
        definition = replace(definition, part=(*definition.part, flag))
    baseline = definition.baseline
    if baseline is None or baseline in options.variants:
        return replace(definition, variants=variants)
    if options.baseline is not None:
        raise UsageError(
            f"{definition.source.path}: {options.called('--baseline')} {baseline}: {flag} leaves "
            f"it out; add {flag} {baseline}"
        )
    return replace(definition, variants=variants, baseline=None, dropped_baseline=baseline)


def _choose_baseline(definition: SuiteDefinition, options: LoadOptions) -> SuiteDefinition:
    """Return the definition with the caller's baseline: a variant, or an earlier run's name."""
    if options.baseline is None:
        return definition
    if any(variant.id == options.baseline for variant in definition.variants):
        return replace(definition, baseline=options.baseline)
    return replace(definition, baseline=None, baseline_run=options.baseline)


def check_file_name(path: Path, file: str) -> None:
    """Raise `LoadError` if the path has bytes that are no text in the file system's encoding.

    No plan can hold them.
    """
    if not is_unicode(str(path.absolute())):
        message = (
            "its name or that of a folder above it is not UTF-8; rename it (if it is UTF-8, the "
            "locale is not: set PYTHONUTF8=1)"
        )
        raise LoadError((Problem(file, None, "", message),))
