"""Which Python a suite declares and cannot be imported, with the line that declares it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import orjson

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
from evalcore.cli.output import one_line
from evalcore.errors import ExitCode, LoadError, NoCaseLeftError, Problem, UsageError
from evalcore.formats.documents import read_document
from evalcore.formats.options import LoadOptions
from evalcore.model.assertion import Assertion
from evalcore.model.suite import Suite
from evalcore.pipeline.acceptance import DemandKind, demands_of
from evalcore.pipeline.plan import PlanOptions, plan_size
from evalcore.pipeline.power import plan_power, power_lines
from evalcore.report.document import on_one_line
from evalcore.statistics.intervals import PowerTest
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import Loc, counted, path_text

_DOCUMENTS: Final = (".yaml", ".yml", ".json")


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
            for loc in _locations(document.value, reference, ()):
                return Problem(file, document.locate(loc), path_text(loc), message)
    return Problem(file, None, where, message)


def _locations(value: Any, text: str, loc: Loc) -> Iterator[Loc]:
    if value == text:
        yield loc
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _locations(member, text, (*loc, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _locations(member, text, (*loc, index))


_TARGETS: Final = frozenset({"cli", "command"})
# What a shell does more with than start one program.
_SHELL: Final = re.compile(r"[|&;<>()$`*?~#\n\\]")
_INTERPRETER: Final = re.compile(
    r"(?:python|pypy)[\d.]*|uv|uvx|poetry|pipenv|node|npx|tsx|ts-node|bun|bunx|deno|pnpm|yarn"
    r"|bash|sh|zsh|dash|ruby|perl|php|lua|Rscript|env"
)
_SCRIPT: Final = re.compile(r".+\.(py|js|mjs|cjs|ts|mts|sh|rb|pl|php|lua|R)")
# What stands after these is code or a module.
_CODE: Final = frozenset({"-c", "-e", "-m", "-p", "--eval", "--print"})

_CHECK: Final = Assertion._fields.index("check")
_PARAMS: Final = Assertion._fields.index("params")


class _Named(NamedTuple):
    """A command as it is written, the folder that it starts in, and who names it."""

    command: str | Sequence[str]
    cwd: str
    where: str


def missing_programs(suite: Suite, file: str) -> tuple[Problem, ...]:
    """Return the files of programs that grade or answer, and that are missing.

    Nothing is started. A suite with workspaces is not judged: its hooks may write such files, and
    targets start in the workspace.
    """
    folder = Path(suite.definition.source.folder)
    missing: dict[str, tuple[_Named, str]] = {}
    for named in _commands(suite):
        program = program_file(named.command)
        if program is None or (folder / named.cwd / program).exists():
            continue
        text = named.command if isinstance(named.command, str) else program
        missing.setdefault(text, (named, program))
    if not missing or any(case.workspace for case in suite.cases):
        return ()
    return tuple(
        problem_of(file, text, named.where, _message(folder / named.cwd, program))
        for text, (named, program) in missing.items()
    )


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


def _commands(suite: Suite) -> Iterator[_Named]:
    for name, target in suite.definition.targets.items():
        if target.kind in _TARGETS:
            yield from _of_mapping(target.options, f"target '{name}'")
            yield from _of_mapping(target.options.get("healthcheck"), f"target '{name}'")
    judged: set[int] = set()
    for case in suite.cases:
        for assertion in case.assertions:
            # Cases of one part share equal assertions.
            if id(assertion) not in judged:
                judged.add(id(assertion))
                yield from _of_check(assertion.check, assertion.params, f"case '{case.id}'")


def _of_check(check: str, params: Mapping[str, Any], where: str) -> Iterator[_Named]:
    """Yield the commands of a check; what it compares may have a `command`, too."""
    inner, fields = params.get("check"), params.get("params")
    if isinstance(inner, str) and isinstance(fields, Mapping):
        yield from _of_check(inner, fields, where)
    if check == "code-grader":
        yield from _of_mapping(params, where)
    yield from _of_mapping(params.get("aggregator"), where)
    yield from _of_mapping(params.get("prompt"), where)
    for value in params.values():
        for member in value if isinstance(value, list | tuple) else ():
            if isinstance(member, list | tuple) and len(member) > _PARAMS:
                yield from _of_member(member, where)


def _of_member(fields: Sequence[Any], where: str) -> Iterator[_Named]:
    """Yield the commands of an assertion that stands in another one as a list of its fields."""
    check, params = fields[_CHECK], fields[_PARAMS]
    if isinstance(check, str) and isinstance(params, Mapping):
        yield from _of_check(check, params, where)


def _of_mapping(value: Any, where: str) -> Iterator[_Named]:
    if not isinstance(value, Mapping):
        return
    command, cwd = value.get("command"), value.get("cwd")
    is_array = isinstance(command, list | tuple) and all(isinstance(w, str) for w in command)
    if isinstance(command, str) or (command and is_array):
        yield _Named(command, cwd if isinstance(cwd, str) else "", where)


def _message(start: Path, program: str) -> str:
    return f"there is no file '{program}' in {start}, which the command starts"


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
