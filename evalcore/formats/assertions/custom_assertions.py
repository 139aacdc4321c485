"""Find a plug-in's manifest, `custom/assertions/<id>.yaml` upward from the suite, and check it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Required

from pydantic import Field, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.errors import LoadError
from evalcore.formats.parts.shared_shapes import STRICT
from evalcore.formats.text.documents import read_document
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import adapter
from evalcore.mistakes.wording import shown_path
from evalcore.settings import find_upward


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
    from evalcore.checks.json import has_keywords, schema_faults

    if schema and not has_keywords(schema):
        name = next(iter(schema))
        return (
            f"'{name}' is no keyword of JSON Schema; declare a parameter as "
            f"{{type: object, properties: {{{name}: {{type: …}}}}, required: [{name}]}}"
        )
    return next((fault.message for fault in schema_faults(schema) if not fault.is_warning), None)


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
