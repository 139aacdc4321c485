"""Read the script that a suite belongs to: models, variables, data and tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalcore.formats.options import LoadOptions
from evalcore.formats.script_suite.includes import ScriptProblems, find_script, read_script_document
from evalcore.formats.script_suite.shapes import ScriptShape
from evalcore.formats.variables import variables_for
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.wording import describe
from evalcore.scripts.mcp import check_servers
from evalcore.scripts.models import read_models
from evalcore.scripts.program import Layer, LevelShape
from evalcore.scripts.statements import read_shape
from evalcore.trust.secrets import literals_of_script


@dataclass(frozen=True, slots=True)
class Script:
    """What a script says; `problems` collects its mistakes, None where there is no script.

    `models` is None where any name is a model's: the environment's provider answers then.
    """

    name: str | None = None
    problems: ScriptProblems | None = None
    models: Mapping[str, Mapping[str, Any]] | None = None
    servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    env: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = (Layer((), None, chain=False),)

    @property
    def warnings(self) -> list[str]:
        """What is accepted and has no effect."""
        if self.problems is None:
            return []
        return [f"{self.problems.file}: {warning}" for warning in self.problems.warnings]


def read_script(name: str | None, suite: Path, options: LoadOptions) -> Script:
    """Return the script of that name; raise `LoadError` if it cannot be read at all."""
    if name is None:
        return Script()
    source = read_script_document(find_script(name), name)
    problems = ScriptProblems(source, strict=options.strict)
    raw = source.document.value
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        keys = ", ".join(ScriptShape.model_fields)
        problems.add((), f"a script is a mapping of {keys}; got {describe(raw)}")
        problems.raise_if_any()
    read_shape(ScriptShape, raw, (), problems)
    refuse_literals(raw, problems)
    shared = raw.get("shared")
    if isinstance(shared, Mapping):
        shared = {key: shared[key] for key in LevelShape.model_fields if key in shared}
    else:
        shared = None
    layers = [Layer(("shared",), shared, chain=False)]
    if raw.get("tools") is not None:
        layers.append(Layer((), {"tools": raw["tools"]}, chain=True))
    return Script(
        name=name,
        problems=problems,
        models=read_models(raw["models"], ("models",), problems) if raw.get("models") else None,
        servers=check_servers(raw.get("mcp"), ("mcp",), problems),
        env=_env(raw.get("env"), suite.parent, options, problems),
        secrets=_secret_names(raw.get("env")),
        layers=tuple(layers),
    )


def refuse_literals(raw: Mapping[str, Any], problems: ScriptProblems) -> None:
    """Note secrets in addresses, headers, calls and the configuration of tools."""
    for literal in dict.fromkeys(literals_of_script(raw)):
        problems.add(literal.path, literal.message("${env.NAME}"))


def _env(raw: Any, folder: Path, options: LoadOptions, problems: ScriptProblems) -> tuple[str, ...]:
    """Return the variables that the script names; note those that no suite may read."""
    if not isinstance(raw, Mapping):
        return ()
    variables = variables_for(folder, options)
    for name in raw:
        loc: Loc = ("env", str(name))
        if not isinstance(name, str):
            continue
        if not variables.may_read(name):
            message = f"may not read the environment variable {name}; name it in a .env file"
            problems.add(loc, f"{message}, or in `readable_names` of evalcore.toml")
        elif variables.value(name) is None:
            problems.warn(loc, f"the environment variable {name} is not set")
    return tuple(str(name) for name in raw)


def _secret_names(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, Mapping):
        return ()
    return tuple(
        str(name)
        for name, variable in raw.items()
        if isinstance(variable, Mapping) and variable.get("secret")
    )
