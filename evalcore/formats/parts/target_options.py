"""What is checked of a target's options beside their shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evalcore.errors import EvalError
from evalcore.formats.parts.interpolation import Variables
from evalcore.formats.parts.target_shapes import TargetCommon
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.targets.registry import COMMON_OPTIONS
from evalcore.targets.templates import TemplateFault
from evalcore.trust.secrets import known_addresses


def has_sound_common(name: str, options: dict[str, Any], loc: Loc, problems: Problems) -> bool:
    """Whether the options that any target may have are well shaped; note what is not."""
    common = {key: options[key] for key in COMMON_OPTIONS if key in options}
    label = f"target '{name}'"
    if not isinstance(options.get("api_key", ""), str | None):
        # What stands there may be a key all the same: it is not shown.
        problems.add((*loc, "api_key"), "expected text, such as ${{ NAME }}", label=label)
        return False
    return problems.check_shape(common, TargetCommon, loc, label=label)


def check_addresses(
    options: Mapping[str, Any], variables: Variables, loc: Loc, problems: Problems, label: str
) -> None:
    """Note addresses that are invalid with the values of their variables, if those are set."""
    for option in known_addresses(options, variables):
        from evalcore.targets.options import check_address

        try:
            check_address(option.text)
        except ValueError as error:
            message = f"with its variables replaced, {error}"
            problems.add((*loc, *option.path), message, label=label)


def note_templates(
    faults: Iterable[TemplateFault], loc: Loc, problems: Problems, label: str, *, strict: bool
) -> list[str]:
    """Note unknown placeholders; return a warning for texts that do not hold the question.

    `strict` makes it a mistake.
    """
    warnings = []
    for fault in faults:
        if fault.is_warning and not strict:
            warnings.append(fault.message)
        else:
            problems.add((*loc, *fault.path), fault.message, label=label)
    return warnings


def check_schemas(options: Mapping[str, Any], loc: Loc, problems: Problems, label: str) -> None:
    """Note what makes a schema none, of a model's answer or of its tools' arguments."""
    written = [(("response_schema",), options.get("response_schema"))]
    for index, tool in enumerate(options.get("tools") or ()):
        own = tool.get("function", tool) if isinstance(tool, Mapping) else {}
        prefix = ("tools", index, *(("function",) if "function" in tool else ()))
        written.append(((*prefix, "parameters"), own.get("parameters")))
    for path, schema in written:
        if isinstance(schema, Mapping):
            from evalcore.checks.json import schema_faults

            for fault in schema_faults(dict(schema)):
                if not fault.is_warning:
                    problems.add((*loc, *path, *fault.path), fault.message, label=label)


def check_fixtures(name: str, folder: Path, loc: Loc, problems: Problems, label: str) -> None:
    """Note that there is no file of answers."""
    from evalcore.targets.simple import fixtures_path

    try:
        fixtures_path(folder, name)
    except EvalError as error:
        problems.add(loc, str(error), label=label)
