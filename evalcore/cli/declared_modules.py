"""Which Python a suite declares and cannot be imported, with the line that declares it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from evalcore.cli.options import settings
from evalcore.cli.scripts import problem_at, tool_references
from evalcore.errors import LoadError, Problem, UsageError
from evalcore.formats.documents import read_document
from evalcore.model.suite import Suite
from evalcore.pipeline.acceptance import DemandKind, demands_of
from evalcore.trust.imports import ImportPolicy
from evalcore.wording import Loc, path_text

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
