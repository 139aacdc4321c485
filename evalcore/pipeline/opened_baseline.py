"""What a run is compared with, opened when it is decided: one of its variants, an earlier run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import DamagedRunError, ObjectNotFoundError
from evalcore.model.comparison import CLOCK_NOISE_MS, Tolerances
from evalcore.model.run import Manifest
from evalcore.model.suite import SuiteDefinition
from evalcore.pipeline.integrity import check_parts, check_shards
from evalcore.pipeline.plan import is_instant
from evalcore.storage.runs import StoredRun, open_run

if TYPE_CHECKING:
    from evalcore.analytics.compare import ComparisonPlan

_NOISE_SINCE: Final = 4  # of `model.suite.FILE_RULES`


@contextmanager
def open_baseline(
    run: StoredRun, manifest: Manifest
) -> Iterator[tuple[ComparisonPlan | None, str | None]]:
    """Give what the run is compared with, or why there is nothing; files last as the context."""
    definition = run.definition
    recorded = manifest.settings.get("baseline")
    if definition.dropped_baseline is not None:
        dropped = definition.dropped_baseline
        chosen = f"add it to the variants that run (--variant {dropped})"
        yield None, f"the baseline variant '{dropped}' was left out: {chosen}"
    elif definition.baseline is not None:
        yield _comparison_plan(definition, baseline=definition.baseline), None
    elif recorded is None:
        yield None, None
    else:
        earlier = open_run(run.store, recorded["suite"], recorded["run"])
        with ExitStack() as stack:
            comparison_plan: ComparisonPlan | None = None
            try:
                manifest = earlier.manifest()
                comparison_plan = stack.enter_context(
                    compare_with_run(definition, earlier, manifest)
                )
            except ObjectNotFoundError:
                reason = f"the baseline run {recorded['run']} is not in the store any more"
            except DamagedRunError as error:
                reason = f"the baseline {error}"
            yield comparison_plan, None if comparison_plan is not None else reason


@contextmanager
def compare_with_run(
    definition: SuiteDefinition, earlier: StoredRun, manifest: Manifest
) -> Iterator[ComparisonPlan]:
    """Give an earlier run as the baseline; its files last as long as the context.

    Raises `DamagedRunError` unless it has a row for each of its items.
    """
    from evalcore.analytics.compare import EarlierRun

    check_shards(earlier, manifest)
    with earlier.result_files(manifest.plan) as parts:
        check_parts(earlier, manifest, parts)
        variants = tuple(variant.id for variant in earlier.definition.variants)
        yield _comparison_plan(
            definition, earlier=EarlierRun(manifest.id, parts, manifest.plan, variants)
        )


def _comparison_plan(definition: SuiteDefinition, **baseline: Any) -> ComparisonPlan:
    from evalcore.analytics.compare import ComparisonPlan

    tolerances = Tolerances(noise_ms=CLOCK_NOISE_MS)
    if definition.file_rules < _NOISE_SINCE:
        tolerances = Tolerances(floor_ms=0.0 if is_instant(definition) else CLOCK_NOISE_MS)
    return ComparisonPlan(
        tuple(variant.id for variant in definition.variants),
        tolerances=tolerances,
        cluster=definition.policy.cluster,
        only_planned=definition.filtered,
        **baseline,
    )
