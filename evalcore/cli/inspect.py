"""`evalcore validate` and `evalcore plan`: everything short of executing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import orjson

from evalcore.cli.declared_modules import check_modules
from evalcore.cli.declared_programs import missing_programs
from evalcore.cli.loading import Named, check_baseline, load_named, load_suites, with_scripts
from evalcore.cli.number_range import NumberRange
from evalcore.cli.options import (
    chosen_store,
    json_option,
    load_options,
    store_option,
    suite_options,
)
from evalcore.cli.showing import one_line
from evalcore.errors import ExitCode, LoadError, NoCaseLeftError, Problem, UsageError
from evalcore.formats.options import LoadOptions
from evalcore.model.suite import Suite
from evalcore.pipeline.plan import PlanOptions, plan_size
from evalcore.pipeline.power import plan_power, power_lines
from evalcore.report.document import on_one_line
from evalcore.statistics.intervals import PowerTest
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted

_SHARE = NumberRange(0, 1, min_open=True, max_open=True)
_DROP = NumberRange(1e-6, 1, max_open=True)
_POWER_HELP = "Probability with which it is found."


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
                if not as_json:
                    click.echo(sanitize_terminal(str(error)), err=True)
            if as_json:
                click.echo(on_one_line(orjson.dumps(entry).decode()))
            elif entry["valid"]:
                _show_valid(entry)
    return int(worst)


def _validated(
    named: Named, options: LoadOptions
) -> Iterator[tuple[dict[str, Any], LoadError | None]]:
    """Yield what there is to say of each suite of a file, with its mistakes if it has some."""
    sound: dict[str, Any] = {"file": named.path, "valid": True, "problems": [], "warnings": []}
    try:
        suites = load_named(named, options)
    except LoadError as error:
        yield _invalid(sound, error), error
        return
    except NoCaseLeftError as error:
        reasons = tuple(Problem(error.suite, None, "", reason) for reason in error.reasons)
        yield _invalid(sound, LoadError(reasons)), LoadError(reasons)
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
            check_modules(suite, named.path)
            entry["warnings"] = _with_programs(suite, named.path, strict=options.strict)
        except LoadError as error:
            yield _invalid(entry, error), error
        else:
            yield entry, None


def _with_programs(suite: Suite, file: str, *, strict: bool) -> tuple[str, ...]:
    """Return a suite's warnings, those about missing programs last: a build may make them.

    With `strict` these raise `LoadError`.
    """
    missing = missing_programs(suite, file)
    if missing and strict:
        raise LoadError(missing)
    return (*suite.warnings, *map(_warning, missing))


def _warning(problem: Problem) -> str:
    line = "" if problem.line is None else f"line {problem.line}: "
    return f"{line}{problem.path}: {problem.message}"


def _invalid(entry: dict[str, Any], error: LoadError) -> dict[str, Any]:
    return entry | {"valid": False, "problems": [_problem(problem) for problem in error.problems]}


def _show_valid(entry: dict[str, Any]) -> None:
    for warning in entry["warnings"]:
        click.echo(one_line(f"Warning: {entry['file']}: {warning}"), err=True)
    what = f"{entry['format']} '{entry['suite']}', {counted(entry['cases'], 'case')}"
    click.echo(sanitize_terminal(f"{entry['file']}: valid, {what}"))


def _problem(problem: Any) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "path": problem.path,
        "message": problem.message,
    }


@click.command()
@suite_options
@click.option("--power", "with_power", is_flag=True, help="Show which drop of the score it finds.")
@click.option("--delta", type=_DROP, default=0.03, show_default=True, help="Drop to be found.")
@click.option("--power-level", type=_SHARE, default=0.8, show_default=True, help=_POWER_HELP)
@click.option("--alpha", type=_SHARE, default=0.05, show_default=True, help="Level of the test.")
@store_option
@json_option
def plan(as_json: bool, suites: tuple[str, ...], store: str | None, **flags: Any) -> None:
    """Show what a run would execute: cases, variants, iterations, items, shards.

    With --power also which drop of the score two runs find, and how many cases or iterations a drop
    of --delta needs. Variances come from the suite's history, else they are assumed.
    """
    with_power, drop = flags.pop("with_power"), flags.pop("delta")
    test = PowerTest(alpha=flags.pop("alpha"), power=flags.pop("power_level"))
    if test.quantiles() <= 0:
        least = f"above {test.alpha / 2:g}: so often the test finds what is not there"
        raise UsageError(f"--power-level: {test.power:g} is not {least}")
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
        power = None
        if with_power:
            power = plan_power(suite, size, chosen_store(store), test, drop)
            described["power"] = power.as_json()
        if as_json:
            click.echo(on_one_line(orjson.dumps(described).decode()))
            continue
        click.echo(sanitize_terminal(f"{definition.name} ({definition.format})"))
        most = "up to " if size.by_round else ""
        iterations = f"{most}{counted(size.iterations, 'iteration')}"
        factors = f"{counted(size.cases, 'case')} × {counted(size.variants, 'variant')}"
        items, shards = counted(size.items, "item"), counted(size.shards, "shard")
        click.echo(f"  {factors} × {iterations} = {items} in {shards}")
        for line in () if power is None else power_lines(power):
            click.echo(f"  {line}")
        for case in suite.cases:
            answered = "given" if case.fixture is not None else case.target or "target"
            text = f"  {case.id}  ({counted(len(case.assertions), 'assertion')}, {answered})"
            click.echo(sanitize_terminal(text))
