"""Files that define assertions: shared lists, manifests of plug-ins, programs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Required

from pydantic import Field, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.errors import LoadError, UsageError
from evalcore.formats.documents import read_document
from evalcore.formats.section import STRICT
from evalcore.formats.variables import Variables, interpolate
from evalcore.problems import Problems
from evalcore.settings import ancestors_within, find_upward, repository_root
from evalcore.shapes import adapter
from evalcore.trust.files import resolve_inside
from evalcore.wording import Loc, shown_path

DEEPEST_INCLUDE: Final = 3
_FOLDER: Final = ".agentv/templates"
_SUFFIXES: Final = (".yaml", ".yml")


class AssertionTemplate(NamedTuple):
    """What a template lists under `assertions`, and the collector of the mistakes in it."""

    path: Path
    entries: list[Any]
    problems: Problems


def is_include(entry: object) -> bool:
    """Whether an entry of a list of assertions stands for those of a template."""
    return isinstance(entry, dict) and len(entry) == 1 and "include" in entry


class AssertionTemplates:
    """Opens the templates that the assertions of a suite include."""

    def __init__(self, folder: Path, variables: Variables) -> None:
        self._folder = folder.resolve()
        self._variables = variables

    def find(self, name: str, beside: Path | None = None) -> Path:
        """Return the path of a template; raise `EvalError` if there is none in the repository.

        A bare name is `.agentv/templates/NAME.yaml`, the nearest one upward; any other is a path,
        looked for from the folder `beside` and from the suite's, upward.
        """
        folders = [folder for folder in (beside, self._folder) if folder is not None]
        if name.startswith(".") or "/" in name or "\\" in name:
            for folder in folders[:-1]:
                if (folder / name).is_file():
                    return resolve_inside(repository_root(self._folder), folder, name)
            return resolve_inside(repository_root(self._folder), self._folder, name)
        for folder in folders:
            path = find_upward(folder, [f"{_FOLDER}/{name}{suffix}" for suffix in _SUFFIXES]).path
            if path is not None:
                return path
        root = repository_root(self._folder)
        raise UsageError(f"no template '{name}': there is no {_FOLDER}/{name}.yaml up to {root}")

    def open(self, path: Path) -> AssertionTemplate:
        """Return what the template at `path` holds; raise `LoadError` if it cannot be read."""
        document = read_document(path, shown_path(path))
        problems = Problems(document.file, document.locate)
        raw = interpolate(document.value, self._variables, (), problems)
        entries = raw.get("assertions") if isinstance(raw, dict) else None
        if not isinstance(entries, list):
            problems.add((), "a template of assertions is a mapping with a list 'assertions'")
            entries = []
        return AssertionTemplate(path, entries, problems)


@with_config(STRICT)
class PluginManifest(TypedDict, total=False):
    """What a plug-in declares. `params` is the JSON Schema of an assertion's `config`."""

    version: Required[str | float | int]
    id: Required[str]
    kind: Required[Literal["assertion"]]
    name: str
    description: str
    returns: Required[Literal["bool", "grading_result"]]
    source: Required[Annotated[str, Field(min_length=1)]]
    params: dict[str, Any] | None


def find_plugin(
    plugin: str, config: dict[str, Any], folder: Path, loc: Loc, problems: Problems
) -> dict[str, Any]:
    """Return the parameters of the check `custom`; note a missing or wrong manifest.

    A config that breaks the manifest's `params` is left to the check, which makes it an assertion
    error.
    """
    loc = (*loc, "type")
    manifest_name = f"custom/assertions/{plugin}.yaml"
    path, refused = find_upward(folder, (manifest_name,))
    if path is None:
        missing = f"no {manifest_name} here or in a folder above, up to the root of the repository"
        reasons = "".join(f"; {other}" for other in refused)
        problems.add(loc, f"no plug-in '{plugin}': {missing}{reasons}")
        return {}
    try:
        manifest = _read_manifest(path, path.stat().st_mtime_ns)
    except LoadError as error:
        problems.include(error.problems)
        return {}
    file = shown_path(path)
    if manifest["id"] != plugin:
        problems.add(loc, f"{file} declares the id '{manifest['id']}', not '{plugin}'")
    source = _source(path.parent.resolve(), manifest["source"])
    if source is None:
        problems.add(loc, f"{file}: source: no file '{manifest['source']}' beside it")
    if (mistake := _schema_mistake(manifest.get("params"))) is not None:
        problems.add(loc, f"{file}: params: {mistake}")
    return {
        "id": plugin,
        "source": str(source),
        "returns": manifest["returns"],
        "params": manifest.get("params"),
        "config": config,
    }


def _schema_mistake(schema: dict[str, Any] | None) -> str | None:
    """Return what makes the params no JSON Schema, None if they are one."""
    if schema is None:
        return None
    from evalcore.checks.json import schema_faults

    return next((fault.message for fault in schema_faults(schema) if schema), None)


def _source(folder: Path, name: str) -> Path | None:
    """Return the plug-in's program, None if there is none below the manifest's folder."""
    try:
        program = (folder / name).resolve()
        return program if program.is_relative_to(folder) and program.is_file() else None
    except (OSError, ValueError):  # a name no file system takes
        return None


@lru_cache(maxsize=64)
def _read_manifest(path: Path, _changed_ns: int) -> PluginManifest:
    document = read_document(path, shown_path(path))
    problems = Problems(document.file, document.locate)
    try:
        manifest: PluginManifest = adapter(PluginManifest).validate_python(document.value)
    except ValidationError as error:
        problems.add_invalid(error, document.value, PluginManifest)
        problems.raise_if_any()
        raise
    return manifest


# In older versions of AgentV graders are called judges.
_FOLDERS: Final = (".agentv/assertions", ".agentv/graders", ".agentv/judges")
_NAME: Final = re.compile(r"[A-Za-z0-9][\w-]*")
_PROGRAM_SUFFIXES: Final = (".ts", ".js", ".mts", ".mjs", ".py")
# What every assertion of a test file may say; the rest is the program's `config`.
_COMMON: Final = frozenset({"name", "weight", "required", "min_score", "negate"})


class ProgramAssertion(NamedTuple):
    """A type of assertion, and the command that grades it."""

    name: str
    command: tuple[str, ...]

    def written(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `code-grader` that an assertion of this type is."""
        common = {key: value for key, value in raw.items() if key in _COMMON}
        config = {key: value for key, value in raw.items() if key not in {*_COMMON, "type"}}
        grader = {"type": "code-grader", "command": list(self.command), "name": self.name}
        return {**grader, **common, **({"config": config} if config else {})}


def program_assertions(folder: Path) -> dict[str, ProgramAssertion]:
    """Return the types that programs define, from `folder` up to the root of its repository.

    Of programs with the same name one in `assertions` wins, then the nearest. One that another user
    may have put there does not count.
    """
    start = folder.resolve()
    programs: dict[str, ProgramAssertion] = {}
    for ancestor, name in _named_files(start):
        file = Path(name)
        if (
            file.stem in programs
            or file.suffix not in _PROGRAM_SUFFIXES
            or not _NAME.fullmatch(file.stem)
        ):
            continue
        path, _ = find_upward(ancestor, (name,))
        if path is not None:
            command = (*_runner(file.suffix), os.path.relpath(path, start))
            programs[file.stem] = ProgramAssertion(file.stem, command)
    return programs


def _named_files(start: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file of the folders for programs: where from, and its path from there."""
    ancestors = list(ancestors_within(start, repository_root(start)))
    for folder in _FOLDERS:
        for ancestor in ancestors:
            try:
                names = sorted(path.name for path in (ancestor / folder).iterdir())
            except OSError:  # not there, no folder, or closed to us
                continue
            for name in names:
                yield ancestor, f"{folder}/{name}"


def _runner(suffix: str) -> tuple[str, ...]:
    """Return the command that runs a file: Bun as AgentV does; without it, Node.js."""
    if suffix == ".py":
        return ("python3",)
    return ("bun", "run") if shutil.which("bun") else ("node",)
