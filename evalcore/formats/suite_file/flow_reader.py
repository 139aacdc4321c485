"""What a suite evaluates, and how its variants change that (docs/reference/suites.md)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.declared.parameters import snake_case
from evalcore.errors import EvalError, LoadError, UsageError
from evalcore.formats.documents import as_json, read_document
from evalcore.formats.options import LoadOptions
from evalcore.formats.suite_file.shapes import SuiteLevel, SuiteVariant
from evalcore.formats.targets import Targets
from evalcore.formats.test_file.input_messages import InputOrigin, read_workflow_texts
from evalcore.isolation.mode import ISOLATIONS
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import CALLABLE
from evalcore.mistakes.wording import path_text, shown_path, suggest
from evalcore.model.target import Target, Variant
from evalcore.targets.registry import KINDS, MODEL_KINDS
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.trust.imports import ImportPolicy
from evalcore.workflow.definition import PARTS, SOUL_KEYS

FLOW: Final = "flow"
WORKFLOW: Final = "workflow"
_FILES: Final = (".yaml", ".yml", ".json")
# Types of nodes that factories use without registering them (docs/reference/suites.md).
_AGENTS: Final = ("claude.agent", "opencode.agent")
_FORMS: Final = "a flow is module:function, a workflow file, or a target's name"


class Flow(NamedTuple):
    """The targets of a suite, which of them answers, and its variants."""

    targets: Mapping[str, Target]
    default: str | None
    variants: tuple[Variant, ...] = ()


def blocks_of(flow: Flow) -> frozenset[str]:
    """Return the blocks of the workflow that a flow is; none if it is something else."""
    target = None if flow.default is None else flow.targets.get(flow.default)
    if target is None or target.kind != WORKFLOW:
        return frozenset()
    return frozenset(target.options["definition"]["blocks"])


def check_function(
    flow: Flow, written: Any, folder: Path, options: LoadOptions, problems: Problems
) -> None:
    """Note that there is no such function as the suite's flow names, if that is known here.

    `written` is the suite's `flow`. Nothing is imported.
    """
    target = None if flow.default is None else flow.targets.get(flow.default)
    reference = None if target is None else target.options.get("callable")
    if options.allow_imports is None or not isinstance(reference, str):
        return
    if reference in options.local_objects:
        return
    try:
        ImportPolicy((folder, Path.cwd()), options.allow_imports).check(reference)
    except UsageError as error:
        loc: Loc = ("flow",)
        while isinstance(written, Mapping):
            key = next((key for key in ("flow", "target", "callable") if key in written), "")
            loc, written = (*loc, key), written.get(key)
        problems.add(loc, str(error))


def check_prompts(flow: Flow, inputs: Collection[str], written: Any, problems: Problems) -> None:
    """Note the placeholders in a workflow's prompts that no input of the cases can fill."""
    if not blocks_of(flow):
        return
    from evalcore.workflow.reading import read_definition
    from evalcore.workflow.references import unknown_placeholders

    definition = read_definition(flow.targets[str(flow.default)].options["definition"])
    for mistake in unknown_placeholders(definition, inputs):
        if isinstance(written, Mapping) and "blocks" in written:
            problems.add(("flow", *mistake.loc), mistake.message)
        else:
            problems.add(("flow",), f"{path_text(mistake.loc)}: {mistake.message}")


class FlowReader:
    """Reads `flow` and `variants`; notes what is wrong with them."""

    def __init__(self, targets: Targets, folder: Path, raw: SuiteLevel, problems: Problems) -> None:
        """Take the suite level: its `primary_output` and its own `targets`."""
        self._targets, self._folder, self._problems = targets, folder, problems
        self._primary: str | None = raw.get("primary_output")
        inline: Sequence[Any] = raw.get("targets") or ()
        self._own_names = [entry["name"] for entry in inline]
        self._inline_models = [
            entry["name"] for entry in inline if entry.get("provider") in MODEL_KINDS
        ]

    def read(self, flow: Any, variants: Sequence[SuiteVariant]) -> Flow:
        """Return the flow with its variants; what is wrong is noted."""
        target = self._target(flow, ("flow",))
        if target is None:
            return Flow({}, None)
        if target.kind in {FLOW, WORKFLOW}:
            names: list[str | None] = [raw.get("provider") for raw in variants]
            if "callable" in target.options:  # its nodes may be of any type
                names += [*self._own_names, *_AGENTS]
            before = target.options.get("providers", {})
            options = self._with_providers(dict(target.options), [*before, *names], ("variants",))
            target = Target(target.name, target.kind, options)
        read_variants = tuple(
            self._variant(raw, target, ("variants", index)) for index, raw in enumerate(variants)
        )
        declared = {name: used for name, used in self._targets.used.items() if name != target.name}
        return Flow({target.name: target, **declared}, target.name, read_variants)

    def named(self, name: str, variants: Sequence[SuiteVariant]) -> Flow:
        """Return the flow of the target that the caller names instead of the suite's."""
        return self.read({"target": name}, variants)

    def _target(self, flow: Any, loc: Loc) -> Target | None:
        if isinstance(flow, str):
            return self._written(flow.strip(), loc)
        if not isinstance(flow, Mapping):
            return None  # its shape is noted already
        if "flow" in flow:
            return self._wrapped(flow, loc)
        if set(flow) == {"target"} and isinstance(flow["target"], str):
            return self._named(flow["target"], loc)
        if "callable" in flow and "provider" not in flow:
            return self._function(flow, loc)
        if isinstance(flow.get("blocks"), Mapping):
            return self._workflow(flow, loc)
        if isinstance(flow.get("provider"), str):
            return self._inline(flow, loc)
        self._problems.add(loc, f"{_FORMS}, a definition with 'blocks', or {{provider: …}}")
        return None

    def _written(self, flow: str, loc: Loc) -> Target | None:
        if flow in self._targets:
            return self._named(flow, loc)
        if re.fullmatch(CALLABLE, flow):
            return self._function({"callable": flow}, loc)
        if flow.lower().endswith(_FILES):
            return self._file(flow, loc)
        hint = suggest(flow, self._targets.names)
        self._problems.add(loc, f"no target is called '{flow}'.{hint} Note: {_FORMS}")
        return None

    def _wrapped(self, flow: Mapping[str, Any], loc: Loc) -> Target | None:
        """Return the target of `{flow, primary_output}`."""
        for key in flow:
            if snake_case(str(key)) not in {"flow", "primary_output", "primary_output_node_id"}:
                hint = suggest(key, ("flow", "primary_output"))
                self._problems.add((*loc, key), f"unknown key '{key}'.{hint}")
        primary = next(
            (value for key, value in flow.items() if snake_case(str(key)).startswith("primary")),
            None,
        )
        if primary is not None and not isinstance(primary, str):
            self._problems.add(loc, "'primary_output' is the id of a block")
            return None
        self._primary = self._primary or primary
        return self._target(flow["flow"], (*loc, "flow"))

    def _named(self, name: str, loc: Loc) -> Target | None:
        self._targets.use(name, loc, self._problems)
        target = self._targets.used.get(name)
        if target is None or self._primary is None:
            return target
        if target.kind == WORKFLOW:
            return Target(name, WORKFLOW, {**target.options, "primary_output": self._primary})
        inner = {"name": name, "kind": target.kind, "options": dict(target.options)}
        return Target(FLOW, "flow", {"target": inner, "primary_output": self._primary})

    def _inline(self, flow: Mapping[str, Any], loc: Loc) -> Target | None:
        name = str(flow.get("name") or FLOW)
        if flow["provider"] not in KINDS:
            hint = suggest(flow["provider"], KINDS)
            message = f"unknown provider '{flow['provider']}'.{hint}"
            self._problems.add((*loc, "provider"), message)
            return None
        self._targets.define(name, {**flow, "name": name}, loc, self._problems)
        return self._named(name, loc)

    def _function(self, flow: Mapping[str, Any], loc: Loc) -> Target | None:
        reference = flow.get("callable")
        if not isinstance(reference, str) or not re.fullmatch(CALLABLE, reference):
            self._problems.add((*loc, "callable"), "is a function, written module:function")
            return None
        for key in flow:
            if key not in {"callable", "behaviour", "isolation"}:
                hint = suggest(key, ("callable", "isolation"))
                self._problems.add((*loc, key), f"unknown key '{key}'.{hint}")
        isolation = flow.get("isolation")
        if isolation is not None and isolation not in ISOLATIONS:
            self._problems.add((*loc, "isolation"), f"is {' or '.join(ISOLATIONS)}")
            return None
        options = {key: value for key, value in flow.items() if value is not None}
        if self._primary is not None:
            options["primary_output"] = self._primary
        return Target(FLOW, "flow", options)

    def _file(self, name: str, loc: Loc) -> Target | None:
        """Return the workflow of a file, which may have an `eval:` section of its own."""
        try:
            path = resolve_inside(repository_root(self._folder), self._folder, name)
            document = read_document(path, shown_path(path))
        except LoadError as error:
            self._problems.include(error.problems)
            return None
        except EvalError as error:
            self._problems.add(loc, str(error))
            return None
        raw = document.value
        if not isinstance(raw, Mapping) or not isinstance(raw.get("blocks"), Mapping):
            self._problems.add(loc, f"{name} is no workflow file: it has no 'blocks'")
            return None
        workflow = {key: value for key, value in raw.items() if key not in {"eval", "evalcore"}}
        noted = Problems(document.file, document.locate)
        workflow = read_workflow_texts(workflow, InputOrigin(path.parent, (), noted))
        self._problems.include(noted.noted)
        return self._workflow(workflow, loc)

    def _workflow(self, raw: Mapping[str, Any], loc: Loc) -> Target | None:
        from evalcore.workflow.reading import behaviour_of, read_definition

        definition = behaviour_of(as_json(dict(raw)))
        try:
            read_definition(definition)
        except KeyError as error:
            self._problems.add(loc, f"is no sound workflow: {error} is required")
            return None
        except (ValueError, TypeError, AttributeError) as error:
            self._problems.add(loc, f"is no sound workflow: {error}")
            return None
        options: dict[str, Any] = {"definition": definition}
        if self._primary is not None:
            options["primary_output"] = self._primary
        souls = (definition.get("souls") or {}).values()
        names = [soul.get("provider") for soul in souls if isinstance(soul, Mapping)]
        return Target(WORKFLOW, WORKFLOW, self._with_providers(options, names, loc))

    def _with_providers(
        self, options: dict[str, Any], names: Iterable[object], loc: Loc
    ) -> dict[str, Any]:
        """Return the options with those targets as providers that are named, or the suite's own."""
        providers: dict[str, Any] = {}
        for name in dict.fromkeys([*names, *self._inline_models]):
            if isinstance(name, str) and name in self._targets:
                self._targets.use(name, loc, self._problems)
                target = self._targets.used.get(name)
                if target is not None:
                    providers[name] = {"kind": target.kind, "options": dict(target.options)}
        return {**options, "providers": providers} if providers else options

    def _config_of(self, raw: SuiteVariant, loc: Loc) -> dict[str, Any]:
        try:
            config: dict[str, Any] = as_json(raw.get("config") or {})
        except TypeError as error:
            self._problems.add((*loc, "config"), f"holds a value that JSON cannot: {error}")
            return {}
        return config

    def _variant(self, raw: SuiteVariant, target: Target, loc: Loc) -> Variant:
        """Return the variant; its provider and model stand where its target's kind looks."""
        config = self._config_of(raw, loc)
        parts = {"provider": raw.get("provider"), "model": raw.get("model")}
        own = {key: value for key, value in parts.items() if value is not None}
        named, provider = raw.get("target"), own.get("provider", "")
        if named is None and target.kind not in {FLOW, WORKFLOW} and provider in self._targets:
            named = own.pop("provider")
        if named is not None:
            self._targets.use(named, (*loc, "target"), self._problems)
            target = self._targets.used.get(named, target)
        if target.kind == FLOW:
            laid = {**own, **({"config": config} if config else {})}
        elif target.kind == WORKFLOW:
            laid = self._over_workflow(own, config, loc)
        else:
            if own.get("provider") == target.kind:
                del own["provider"]
            laid = {**config, **own}
        variant = Variant(raw["id"], named, laid, tuple(raw.get("tags", ())))
        if target.kind in {FLOW, WORKFLOW}:
            self._targets.refuse_literals(config, (*loc, "config"), self._problems)
            return variant
        if "provider" in own:
            message = f"target '{target.name}' is of kind '{target.kind}'; name a target here"
            self._problems.add((*loc, "provider"), message)
        else:
            self._targets.use_variant(target.name, variant, (*loc, "config"), self._problems)
        return variant

    def _over_workflow(
        self, own: Mapping[str, Any], config: Mapping[str, Any], loc: Loc
    ) -> dict[str, Any]:
        """Return what is laid over a workflow: fields of every soul, parts of it."""
        laid: dict[str, Any] = {}
        for key, value in config.items():
            snake = snake_case(key)
            if snake in PARTS | SOUL_KEYS:
                laid[snake] = value
            else:
                hint = suggest(snake, PARTS | SOUL_KEYS)
                self._problems.add((*loc, "config", key), f"unknown key '{key}'.{hint}")
        return {**laid, **own}
