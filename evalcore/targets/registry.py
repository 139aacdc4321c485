"""The table of target kinds, and a target with a variant made ready to answer."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from evalcore.errors import EvalError, TargetError, UsageError
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant
from evalcore.wording import did_you_mean, known_names

if TYPE_CHECKING:
    from types import ModuleType

    from pydantic import BaseModel, ValidationError

    from evalcore.targets.options import BuildContext
    from evalcore.targets.work import Runnable


# Seconds in which an item of a target that runs the author's own code ends.
OWN_CODE_S: Final = 600.0


class TargetKind(NamedTuple):
    """Where a kind stands: the class that answers, the model of its options beside it.

    `open_field` is the option (a free mapping) that takes the other keys of a variant's
    configuration. The runnable of a kind that `takes_context` gets a
    `targets.options.BuildContext` after its options.

    An `instant` kind takes no time unless its option `latency_ms` says so. A kind that `asks_model`
    has the option `model`; one that `has_blocks` executes them and is asked for checks of each.
    Without `reads_messages` the input of a case is no text for a model. The module of a kind that
    runs functions `in_workers` is imported by worker processes as they start.

    A kind that runs the author's own code has no limit of its own: `item_timeout_s` bounds an item
    as a whole where the suite has no `limits.timeout_s`.
    """

    place: str
    options: str
    open_field: str | None = None
    takes_context: bool = False
    instant: bool = False
    asks_model: bool = False
    has_blocks: bool = False
    reads_messages: bool = True
    in_workers: bool = False
    item_timeout_s: float | None = None

    @property
    def module(self) -> str:
        """The module of the class and its options."""
        return f"evalcore.targets.{self.place.partition('.')[0]}"

    @property
    def runnable(self) -> Any:
        """The class that answers."""
        return getattr(_module_of(self), self.place.partition(".")[2])


_MODEL: Final = TargetKind("model.OpenAITarget", "ChatOptions", takes_context=True, asks_model=True)
_FUNCTION: Final = TargetKind(
    "python.PythonTarget",
    "PythonOptions",
    "config",
    takes_context=True,
    in_workers=True,
    item_timeout_s=OWN_CODE_S,
)
_WORKFLOW: Final = TargetKind(
    "workflow.WorkflowTarget", "WorkflowOptions", "variant", takes_context=True, has_blocks=True
)
KINDS: Final[Mapping[str, TargetKind]] = MappingProxyType(
    {
        "anthropic": _MODEL._replace(place="model.AnthropicTarget"),
        "block": _WORKFLOW._replace(
            place="workflow.ReplayedBlock", has_blocks=False, reads_messages=False
        ),
        "cli": TargetKind("program.CliTarget", "CliOptions"),
        "command": TargetKind("program.CommandTarget", "CommandOptions"),
        "echo": TargetKind("simple.EchoTarget", "EchoOptions", instant=True),
        "fixture": TargetKind("simple.FixtureTarget", "FixtureOptions", instant=True),
        "flow": _FUNCTION._replace(place="flow.FlowTarget", options="FlowOptions", has_blocks=True),
        "http": TargetKind("http.HttpTarget", "HttpOptions", takes_context=True),
        "mock": TargetKind("simple.MockTarget", "MockOptions", instant=True),
        "openai": _MODEL,
        "python": _FUNCTION,
        "workflow": _WORKFLOW,
    }
)
MODEL_KINDS: Final = tuple(kind for kind, row in KINDS.items() if row.asks_model)
"""The kinds of targets that functions, judges and souls may ask."""
# What the loader of script suites makes; no file names it, so that nothing of it is checked again.
SCRIPT: Final = "script"
_SCRIPT_KIND: Final = TargetKind(
    "script.ScriptTarget",
    "",
    reads_messages=False,
    item_timeout_s=OWN_CODE_S,
)
_UNKNOWN_KIND: Final = TargetKind("", "")
# Of a target of any kind; who schedules and grades reads them.
COMMON_OPTIONS: Final = ("fallback_targets", "grader_target", "reasoning", "workers")
# Options of targets without a context that may hold references.
_WITH_SECRETS: Final = ("config", "env", "headers")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


def target_kind(kind: str) -> TargetKind:
    """Return the row of `kind`; raise `UsageError` that names the known ones."""
    row = KINDS.get(kind)
    if row is not None:
        return row
    hint = f"{did_you_mean(kind, KINDS)} {known_names(KINDS)}"
    raise UsageError(f"unknown target kind '{kind}'.{hint}")


def kind_facts(kind: str) -> TargetKind:
    """Return the row of `kind`, also of a script's; a plain one for a kind that is not known."""
    return _SCRIPT_KIND if kind == SCRIPT else KINDS.get(kind, _UNKNOWN_KIND)


def is_instant(target: Target) -> bool:
    """Whether the answers of a target take no time."""
    if target.kind == SCRIPT:
        return target.options.get("instant") is True
    return kind_facts(target.kind).instant and not target.options.get("latency_ms")


def options_model(kind: str) -> type[BaseModel]:
    """Return the pydantic model of a kind's options (for checking and for JSON Schema)."""
    row = target_kind(kind)
    return cast("type[BaseModel]", getattr(_module_of(row), row.options))


def _module_of(row: TargetKind) -> ModuleType:
    from evalcore.shapes import without_plugins

    with without_plugins():
        return import_module(row.module)


def merged_options(target: Target, variant: Variant = DEFAULT_VARIANT) -> dict[str, Any]:
    """Return the target's options with the variant's configuration laid over them.

    Whole values are replaced, not merged, except in a kind's open field; `systemPrompt` means
    `system_prompt`. Options that every target may have (`COMMON_OPTIONS`) are no part of it. Raise
    `UsageError` for an unknown kind.
    """
    fields = options_model(target.kind).model_fields
    open_field = target_kind(target.kind).open_field
    merged = {_name(key, fields): value for key, value in target.options.items()}
    free: dict[str, Any] = {}
    for written, value in variant.config.items():
        key = _name(written, fields)
        if open_field is None or key in fields:
            merged[key] = value
        else:
            free[written] = value
    for name in COMMON_OPTIONS:
        if name not in fields:
            merged.pop(name, None)
    base = {} if open_field is None else merged.get(open_field, {})
    # A misshapen base stays as it is: the model says what is wrong with it.
    if open_field is not None and free and isinstance(base, Mapping):
        merged[open_field] = {**base, **free}
    return merged


def _name(key: str, fields: Mapping[str, Any]) -> str:
    """Return the name of an option that may be written in camel case."""
    if key in fields or not isinstance(key, str):
        return key
    name = _HUMP.sub(r"_\1", key).lower()
    return name if name in fields or name in COMMON_OPTIONS else key


def build(
    target: Target,
    variant: Variant = DEFAULT_VARIANT,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Runnable:
    """Return the target, changed by the variant, ready to answer.

    Raise pydantic's `ValidationError` for options that do not fit, `UsageError` for an unknown
    kind. The variant's own `target` is the caller's to resolve: `target` is what it names.
    Secrets come from the `environment` (this process's) and the nearest `.env` from the suite's
    `folder` (the current one) upward; `TargetError` if one is not there, from `answer` if the
    target asks a provider, for in replay it is not needed.
    """
    folder = Path() if folder is None else folder
    surroundings = os.environ if environment is None else environment
    runnable = _built(target, variant, folder, surroundings)
    named: Any = target.options.get("fallback_targets") or ()
    if not named:
        return runnable
    from evalcore.targets.wrappers import WithFallbacks

    others = [Target(entry["name"], entry["kind"], entry["options"]) for entry in named]
    built = [_built(other, DEFAULT_VARIANT, folder, surroundings) for other in others]
    names = [each.name for each in (target, *others)]
    return WithFallbacks(list(zip(names, (runnable, *built), strict=True)))


def build_within(
    context: BuildContext,
    target: Target,
    variant: Variant = DEFAULT_VARIANT,
    *,
    what: str,
    error_kind: str,
) -> Runnable:
    """Return a target that a target asks, ready to answer.

    Raise `TargetError` of `error_kind` that names `what` (as "target 'x'") for options that do not
    fit.
    """
    from pydantic import ValidationError

    try:
        return build(target, variant, folder=context.folder, environment=context.surroundings)
    except ValidationError as error:
        raise TargetError(error_kind, f"{what}: {first_mistake(error)}") from error
    except TargetError:
        raise
    except (EvalError, ValueError) as error:
        raise TargetError(error_kind, f"{what}: {error}") from error


def first_mistake(error: ValidationError) -> str:
    """Return the place and the text of the first mistake in a target's options."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _built(
    target: Target, variant: Variant, folder: Path, environment: Mapping[str, str]
) -> Runnable:
    from evalcore.targets.wrappers import WithoutReasoning, strips_reasoning

    runnable: Runnable
    if target.kind == SCRIPT:
        from evalcore.targets.options import context_for

        _, context = context_for(target.name, {}, folder, environment)
        runnable = _SCRIPT_KIND.runnable(target.options["definition"], variant.config, context)
    else:
        runnable = _with_options(target, variant, folder, environment)
    return WithoutReasoning(runnable) if strips_reasoning(target, variant) else runnable


def _with_options(
    target: Target, variant: Variant, folder: Path, environment: Mapping[str, str]
) -> Any:
    row, model = target_kind(target.kind), options_model(target.kind)
    options = merged_options(target, variant)
    checked = model.model_validate(options)
    if not row.takes_context and not any(name in options for name in _WITH_SECRETS):
        return row.runnable(checked)
    from evalcore.targets.options import context_for

    with_secrets, context = context_for(target.name, options, folder, environment)
    if row.takes_context:
        return row.runnable(model.model_validate(with_secrets), context)
    if context.problem is not None:
        raise context.problem
    return row.runnable(model.model_validate(with_secrets))
