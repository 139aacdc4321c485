"""`evalcore validate` and `evalcore plan`: everything short of executing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from evalcore.cli.loading import (
    Named,
    check_baseline,
    load_named,
    load_suites,
    problem_at,
    tool_references,
    with_scripts,
)
from evalcore.cli.options import (
    NumberRange,
    chosen_store,
    json_option,
    load_options,
    settings,
    store_option,
    suite_options,
)
from evalcore.cli.output import emit, say, warn
from evalcore.errors import ExitCode, LoadError, NoCaseLeftError, Problem, UsageError
from evalcore.formats.documents import read_document
from evalcore.formats.options import LoadOptions
from evalcore.jsonvalues import texts_in
from evalcore.model.suite import Suite
from evalcore.pipeline.acceptance import DemandKind, demands_of
from evalcore.pipeline.plan import PlanOptions, plan_size
from evalcore.pipeline.power import plan_power, power_lines
from evalcore.statistics.intervals import PowerTest
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted, path_text

_DOCUMENTS: Final = (".yaml", ".yml", ".json")
# What a shell does more with than start one program.
_SHELL: Final = re.compile(r"[|&;<>()$`*?~#\n\\]")
_INTERPRETER: Final = re.compile(
    r"(?:python|pypy)[\d.]*|uv|uvx|poetry|pipenv|node|npx|tsx|ts-node|bun|bunx|deno|pnpm|yarn"
    r"|bash|sh|zsh|dash|ruby|perl|php|lua|Rscript|env"
)
_SCRIPT: Final = re.compile(r".+\.(py|js|mjs|cjs|ts|mts|sh|rb|pl|php|lua|R)")
# What stands after these is code or a module.
_CODE: Final = frozenset({"-c", "-e", "-m", "-p", "--eval", "--print"})


def check_modules(suite: Suite, file: str) -> None:
    """Raise `LoadError` for the Python of targets, tools, checks and gates that is missing.

    Nothing is imported.
    """
    folders = (Path(suite.definition.source.folder), Path.cwd())
    policy = ImportPolicy(folders, settings().allow_imports)
    problems, judged = [], set()
    for reference, script, loc in tool_references(suite):
        judged.add(reference)
        if message := _mistake(reference, policy):
            problems.append(problem_at(script, loc, message))
    for demand in demands_of(suite.definition, suite.cases):
        if demand.kind is DemandKind.IMPORT and demand.what not in judged:
            judged.add(demand.what)
            if message := _mistake(demand.what, policy):
                problems.append(problem_of(file, demand.what, demand.where, message))
    if problems:
        raise LoadError(tuple(problems))


def _mistake(reference: str, policy: ImportPolicy) -> str | None:
    try:
        policy.check(reference, here=True)
    except UsageError as error:
        return str(error)
    return None


def problem_of(file: str, reference: str, where: str, message: str) -> Problem:
    """Return a mistake at the first place of the file that has the reference.

    `where` says who asks for it; it stands alone if the reference is in another file.
    """
    if file.lower().endswith(_DOCUMENTS):
        # The suite is loaded, so only the file of this moment may be another one.
        with suppress(LoadError):
            document = read_document(Path(file), file)
            for loc, text in texts_in(document.value):
                if text == reference:
                    return Problem(file, document.locate(loc), path_text(loc), message)
    return Problem(file, None, where, message)


def missing_programs(suite: Suite, file: str) -> tuple[Problem, ...]:
    """Return the files of programs that grade or answer, and that are missing.

    Nothing is started. A suite with workspaces is not judged: its hooks may write such files, and
    targets start in the workspace.
    """
    if any(case.workspace for case in suite.cases):
        return ()
    missing: dict[str, Problem] = {}
    for options, where in _commands(suite):
        command, cwd = options.get("command"), options.get("cwd") or ""
        folder = Path(suite.definition.source.folder) / str(cwd)
        program = None if command is None else program_file(command)
        if program is not None and not (folder / program).exists():
            text = command if isinstance(command, str) else program
            message = f"there is no file '{program}' in {folder}, which the command starts"
            missing.setdefault(text, problem_of(file, text, where, message))
    return tuple(missing.values())


def _commands(suite: Suite) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the options that have a `command` to start, and who names it."""
    for name, target in suite.definition.targets.items():
        if target.kind in {"cli", "command"}:
            for options in (target.options, target.options.get("healthcheck")):
                if isinstance(options, Mapping):
                    yield options, f"target '{name}'"
    # Cases of one part share equal assertions.
    named = {id(each): (each, case.id) for case in suite.cases for each in case.assertions}
    for assertion, case_id in named.values():
        params = assertion.params
        for options in (
            params if assertion.check == "code-grader" else {},
            params.get("aggregator"),
        ):
            if isinstance(options, Mapping):
                yield options, f"case '{case_id}'"


def program_file(command: str | Sequence[str]) -> str | None:
    """Return the file that a command starts, by its path from where it starts; None if none shows.

    It is the first word if that is a relative path, else the script that an interpreter is given.
    """
    if isinstance(command, str):
        if _SHELL.search(command):
            return None
        try:
            words: Sequence[str] = shlex.split(command)
        except ValueError:
            return None
    else:
        words = command
    if not words or "=" in words[0]:
        return None
    if "/" in words[0]:
        return None if words[0].startswith("/") or "{" in words[0] else words[0]
    if _INTERPRETER.fullmatch(words[0]) is None:
        return None
    for word in words[1:]:
        if word in _CODE or "{" in word:
            return None
        if _SCRIPT.fullmatch(word) and not word.startswith(("-", "/")) and "://" not in word:
            return word
    return None


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
            check_modules(suite, named.path)
            # A build may make programs that are missing: these are warnings.
            missing = missing_programs(suite, named.path)
            if missing and options.strict:
                raise LoadError(missing)
        except LoadError as error:
            yield entry, error
        else:
            entry["warnings"] = (*suite.warnings, *map(_warning, missing))
            yield entry, None


def _warning(problem: Problem) -> str:
    line = "" if problem.line is None else f"line {problem.line}: "
    return f"{line}{problem.path}: {problem.message}"


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
