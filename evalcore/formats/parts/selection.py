"""What the caller's filters keep: `--case`, `--tag`, `--exclude-tag`, `--variant`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from evalcore.errors import NoCaseLeftError, UsageError
from evalcore.formats.parts.load_options import LoadOptions
from evalcore.mistakes.wording import suggest
from evalcore.model.suite import SuiteDefinition

MAX_NAMES = 10_000
_LISTED = 20


class Selection:
    """Decides case by case, and returns at the end which filters matched nothing."""

    def __init__(self, options: LoadOptions) -> None:
        self._options = options
        self.active = bool(options.cases or options.tags or options.excluded_tags)
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
            unmet = [f"the filters leave no case: {', '.join(self._written())}"]
        raise NoCaseLeftError(file, unmet)

    def _unmet(self) -> Iterator[str]:
        options = self._options
        tag = "case has the tag"
        yield from self._unknown_cases(options.called("--case"), options.cases - self._ids)
        yield from _unknown(options.called("--tag"), tag, options.tags, self._tags)
        yield from _unknown(options.called("--exclude-tag"), tag, options.excluded_tags, self._tags)

    def _unknown_cases(self, flag: str, unknown: frozenset[str]) -> Iterator[str]:
        rest = set(unknown)
        # `--cases` separates its ids by commas, which an id may have.
        for case_id in sorted(case_id for case_id in self._ids if "," in case_id):
            parts = {part.strip() for part in case_id.split(",")}
            if parts & rest:
                yield f"'{case_id}' is one id with a comma: name it by {flag}, not in a list"
                rest -= parts
        yield from _unknown(flag, "case has the id", rest, self._ids)

    def _written(self) -> Iterator[str]:
        options = self._options
        for name, values in (
            ("--case", options.cases),
            ("--tag", options.tags),
            ("--exclude-tag", options.excluded_tags),
        ):
            yield from (f"{options.called(name)} {value}" for value in sorted(values))


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
    chosen = {
        "--case": options.cases,
        "--tag": options.tags,
        "--exclude-tag": options.excluded_tags,
    }
    part = tuple(options.called(name) for name, values in chosen.items() if values)
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
