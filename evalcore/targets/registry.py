"""The table of target kinds, and a target with a variant made ready to answer."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from evalcore.errors import UsageError
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant

if TYPE_CHECKING:
    from pydantic import BaseModel

    from evalcore.targets.work import Runnable


class TargetKind(NamedTuple):
    """Where a kind stands: its module, the class that answers, the model of its options.

    `open_field` is the option (a free mapping) that takes those keys of a variant's configuration
    which are no options themselves.
    """

    module: str
    runnable: str
    options: str
    open_field: str | None = None


KINDS: Final[Mapping[str, TargetKind]] = MappingProxyType(
    {
        "command": TargetKind("evalcore.targets.command", "CommandTarget", "CommandOptions"),
        "echo": TargetKind("evalcore.targets.echo", "EchoTarget", "EchoOptions"),
        "fixture": TargetKind("evalcore.targets.fixture", "FixtureTarget", "FixtureOptions"),
        "mock": TargetKind("evalcore.targets.mock", "MockTarget", "MockOptions"),
        "python": TargetKind("evalcore.targets.python", "PythonTarget", "PythonOptions", "config"),
    }
)
LATER_KINDS: Final = ("anthropic", "http", "openai", "workflow")


def target_kind(kind: str) -> TargetKind:
    """Return the row of `kind`; raise `UsageError` that names the known ones."""
    row = KINDS.get(kind)
    if row is not None:
        return row
    known = ", ".join(KINDS)
    if kind in LATER_KINDS:
        raise UsageError(f"this version does not have targets of kind '{kind}' yet; it has {known}")
    close = difflib.get_close_matches(kind, KINDS, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise UsageError(f"unknown target kind {kind!r}.{hint} Known kinds: {known}")


def options_model(kind: str) -> type[BaseModel]:
    """Return the pydantic model of a kind's options (for checking and for JSON Schema)."""
    row = target_kind(kind)
    return cast("type[BaseModel]", getattr(import_module(row.module), row.options))


def merge_options(target: Target, variant: Variant = DEFAULT_VARIANT) -> BaseModel:
    """Return the target's options with the variant's configuration laid over them, checked.

    Whole values are replaced, not merged, except in a kind's open field. Raise pydantic's
    `ValidationError` for options that do not fit, `UsageError` for an unknown kind.
    """
    model = options_model(target.kind)
    open_field = target_kind(target.kind).open_field
    merged: dict[str, Any] = {**target.options}
    free: dict[str, Any] = {}
    for key, value in variant.config.items():
        if open_field is None or key in model.model_fields:
            merged[key] = value
        else:
            free[key] = value
    base = {} if open_field is None else merged.get(open_field, {})
    # A misshapen base stays as it is: the model says what is wrong with it.
    if open_field is not None and free and isinstance(base, Mapping):
        merged[open_field] = {**base, **free}
    return model.model_validate(merged)


def build(target: Target, variant: Variant = DEFAULT_VARIANT) -> Runnable:
    """Return the target, changed by the variant, ready to answer; errors as `merge_options`.

    The variant's own `target` is the caller's to resolve: `target` is what it names.
    """
    row = target_kind(target.kind)
    make = getattr(import_module(row.module), row.runnable)
    return cast("Runnable", make(merge_options(target, variant)))
