"""What is checked of a target's options beside their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalcore.errors import EvalError
from evalcore.formats.parts.interpolation import Variables
from evalcore.formats.parts.target_shapes import TargetCommon
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.targets.registry import COMMON_OPTIONS
from evalcore.trust.secret_options import known_addresses


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
        from evalcore.targets.build_context import check_address

        try:
            check_address(option.text)
        except ValueError as error:
            message = f"with its variables replaced, {error}"
            problems.add((*loc, *option.path), message, label=label)


def check_fixtures(name: str, folder: Path, loc: Loc, problems: Problems, label: str) -> None:
    """Note that there is no file of answers."""
    from evalcore.targets.replay import fixtures_path

    try:
        fixtures_path(folder, name)
    except EvalError as error:
        problems.add(loc, str(error), label=label)
