"""`evalcore validate` and `evalcore plan`: everything short of executing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from evalcore.cli.loading import (
    Named,
    check_baseline,
    load_named,
    load_suites,
    with_scripts,
)
from evalcore.cli.options import (
    NumberRange,
    chosen_store,
    json_option,
    load_options,
    store_option,
    suite_options,
)
from evalcore.cli.output import emit, say, warn
from evalcore.errors import ExitCode, LoadError, NoCaseLeftError, Problem, UsageError
from evalcore.formats.options import LoadOptions
from evalcore.pipeline.plan import PlanOptions, plan_size
from evalcore.pipeline.power import plan_power, power_lines
from evalcore.statistics.intervals import PowerTest
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted


@click.command()
@suite_options
@json_option
def validate(as_json: bool, suites: tuple[str, ...], **flags: Any) -> int:
    """Check suite files and run nothing; exit code 2 if one has a mistake."""
    if not suites:
        raise UsageError("name at least one suite file: evalcore validate SUITE…")
    options = load_options(flags, allow_imports=())
    worst = ExitCode.PASS
    for named in with_scripts(suites):
        for entry, error in _validated(named, options):
            if error is not None:
                worst = ExitCode.USAGE
                problems = [
                    {
                        "file": each.file,
                        "line": each.line,
                        "path": each.path,
                        "message": each.message,
                    }
                    for each in error.problems
                ]
                entry |= {"valid": False, "problems": problems}
            if as_json:
                emit(entry, as_json, ())
            elif error is not None:
                click.echo(sanitize_terminal(str(error)), err=True)
            else:
                for warning in entry["warnings"]:
                    warn(f"{named.path}: {warning}")
                cases = counted(entry["cases"], "case")
                say(f"{named.path}: valid, {entry['format']} '{entry['suite']}', {cases}")
    return int(worst)


def _validated(
    named: Named, options: LoadOptions
) -> Iterator[tuple[dict[str, Any], LoadError | None]]:
    """Yield what there is to say of each suite of a file, with its mistakes if it has some."""
    sound: dict[str, Any] = {"file": named.path, "valid": True, "problems": [], "warnings": []}
    try:
        suites = load_named(named, options)
    except LoadError as error:
        yield sound, error
        return
    except NoCaseLeftError as error:
        yield (
            sound,
            LoadError(tuple(Problem(error.suite, None, "", each) for each in error.reasons)),
        )
        return
    for suite in suites:
        entry = sound | {
            "suite": suite.definition.name,
            "format": suite.definition.format,
            "cases": len(suite.cases),
            "warnings": suite.warnings,
        }
        try:
            check_baseline(suite.definition)
        except LoadError as error:
            yield entry, error
        else:
            yield entry, None


@click.command()
@suite_options
@click.option("--power", "with_power", is_flag=True, help="Show which drop of the score it finds.")
@click.option(
    "--delta",
    type=NumberRange(1e-6, 1, max_open=True),
    default=0.03,
    show_default=True,
    help="Drop to be found.",
)
@store_option
@json_option
def plan(
    as_json: bool,
    suites: tuple[str, ...],
    with_power: bool,
    delta: float,
    store: str | None,
    **flags: Any,
) -> None:
    """Show what a run would execute: cases, variants, iterations, items, shards.

    With --power also which drop of the score two runs find, and how many cases or iterations a drop
    of --delta needs. Variances come from the suite's history, else they are assumed.
    """
    for suite in load_suites(suites, load_options(flags, allow_imports=())):
        definition = suite.definition
        check_baseline(definition)
        size = plan_size(suite, PlanOptions(), latency_s=None)
        described = {
            "suite": definition.name,
            "format": definition.format,
            "items": size.items,
            "cases": size.cases,
            "variants": [variant.id for variant in definition.variants],
            "iterations": size.iterations,
            "auto_iterations": size.by_round,
            "shards": size.shards,
            "shard_size": size.shard_size,
            "gates": [{"gate": gate.gate, **gate.params} for gate in definition.policy.gates],
        }
        most = "up to " if size.by_round else ""
        lines = [
            f"{definition.name} ({definition.format})",
            f"  {counted(size.cases, 'case')} × {counted(size.variants, 'variant')} × "
            f"{most}{counted(size.iterations, 'iteration')} = {counted(size.items, 'item')} in "
            f"{counted(size.shards, 'shard')}",
        ]
        if with_power:
            power = plan_power(suite, size, chosen_store(store), PowerTest(), delta)
            described["power"] = power.as_json()
            lines += [f"  {line}" for line in power_lines(power)]
        for case in suite.cases:
            answered = "given" if case.fixture is not None else case.target or "target"
            checks = counted(len(case.assertions), "assertion")
            lines.append(f"  {case.id}  ({checks}, {answered})")
        emit(described, as_json, lines)
