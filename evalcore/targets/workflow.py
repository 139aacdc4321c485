"""The targets `workflow` and `block`: the project's own engine runs a workflow or a block of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pydantic import Field, ValidationError, model_validator

from evalcore.errors import TargetError, UsageError
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import NOTHING, Evidence, Metrics
from evalcore.model.target import Target
from evalcore.providers.chat import PROTOCOLS, ChatOptions
from evalcore.targets.options import ENVIRONMENT, KEYLESS_MODES, BuildContext, provider_of
from evalcore.targets.registry import build, first_mistake
from evalcore.targets.work import (
    Answering,
    Message,
    Runnable,
    TargetOptions,
    Work,
    prompt_of,
)
from evalcore.workflow.context import EngineServices, SoulAnswer
from evalcore.workflow.definition import (
    PARTS,
    SOUL_KEYS,
    Soul,
    WorkflowDefinition,
    apply_variant,
    soul_fields,
)
from evalcore.workflow.engine import Finished, Fixtures, replay_block, run_workflow
from evalcore.workflow.events import (
    NO_EXECUTOR,
    NoExecutorError,
    WorkflowError,
    by_block,
    sum_calls,
)
from evalcore.workflow.reading import behaviour_of, read_definition
from evalcore.workflow.run_store import MemoryRunStore
from evalcore.workflow.values import text_of


class PersonaProvider:
    """Builds the target behind each soul once, and asks it."""

    def __init__(self, providers: Mapping[str, Mapping[str, Any]], context: BuildContext) -> None:
        """Take what a soul's `provider` may name: entries `{kind, options}` by name."""
        self._providers = providers
        self._context = context
        self._built: dict[str, tuple[str, Runnable]] = {}
        self._configured = any(context.environment.get(name) for name in ENVIRONMENT)

    async def ask(self, work: Work, soul: Soul, messages: Sequence[Message]) -> SoulAnswer:
        """Return the answer.

        Raise `UsageError` where the soul names no model or an unknown provider, `NoExecutorError`
        where it names no provider and none is configured; `ProviderError`, `SkippedError` and other
        `TargetError`s as the provider does.
        """
        if soul.provider is None and work.mode not in KEYLESS_MODES and not self._configured:
            raise NoExecutorError("not_executable", "no provider is configured")
        provider, runnable = self._runnable(soul)
        conversation = tuple(messages)
        prompt = prompt_of(conversation)
        case = work.case._replace(input=prompt)
        question = replace(work, case=case, messages=conversation, prompt=prompt)
        evidence = await runnable.answer(question)
        return _answer_of(evidence, provider, soul)

    def _runnable(self, soul: Soul) -> tuple[str, Runnable]:
        key = repr(soul)
        if key not in self._built:
            name, context = provider_of(soul.provider, soul.model_name), self._context
            target = self._target(soul, name)
            try:
                built = build(target, folder=context.folder, environment=context.surroundings)
            except ValidationError as error:
                message = f"soul '{soul.id}', provider '{name}': {first_mistake(error)}"
                raise UsageError(message) from error
            self._built[key] = name, built
        return self._built[key]

    def _target(self, soul: Soul, name: str) -> Target:
        entry = self._providers.get(name)
        if entry is None:
            if name not in PROTOCOLS:
                names = ", ".join(dict.fromkeys([*self._providers, *PROTOCOLS]))
                raise UsageError(f"soul '{soul.id}': unknown provider '{name}'; known: {names}")
            if soul.model_name is None:
                message = f"soul '{soul.id}' names no model, or is not defined"
                raise UsageError(f"{message}; give it 'model_name'")
            return Target(name, name, _soul_options({}, soul))
        kind, options = entry["kind"], entry["options"]
        if kind not in PROTOCOLS:
            return Target(name, kind, options)
        if soul.model_name is None and not options.get("model"):
            message = f"soul '{soul.id}': neither it nor provider '{name}' names a model"
            raise UsageError(f"{message}; give it 'model_name'")
        return Target(name, kind, _soul_options(options, soul))


def _soul_options(options: Mapping[str, Any], soul: Soul) -> dict[str, Any]:
    """Return a model's options with the soul's laid over them."""
    merged = dict(options)
    if soul.model_name is not None:
        merged["model"] = soul.model_name
    if soul.system_prompt:
        merged.pop("system_prompt", None)
    for name, value in soul.parameters.items():
        if name in ChatOptions.model_fields:
            merged[name] = value
        else:
            merged["parameters"] = {**merged.get("parameters", {}), name: value}
    return merged


def _answer_of(evidence: Evidence, provider: str, soul: Soul) -> SoulAnswer:
    if evidence.output is None:
        raise TargetError("target", f"provider '{provider}' gave no output")
    calls = evidence.details.get("calls")
    call: Mapping[str, Any] = calls[-1] if calls else {}
    return SoulAnswer(
        text=evidence.output,
        provider=call.get("provider") or provider,
        model=call.get("model") or soul.model_name or "",
        metrics=evidence.metrics,
        attempts=call.get("attempts") or 1,
        recorded=bool(call.get("recorded")),
    )


# Where the evidence of an execution that records its steps has them.
STEPS: Final = "steps"


class WorkflowOptions(TargetOptions):
    """Options of a target of kind `workflow`."""

    definition: dict[str, Any] = Field(
        description="The workflow: `blocks`, `souls`, `workflow` (entry and transitions), "
        "`limits`. These keys may also stand beside the other options, instead."
    )
    workflows: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="The workflows that its `workflow_ref`s name, by name."
    )
    checks: dict[str, list[list[Any]]] = Field(
        default_factory=dict, description="The blocks' own assertions, already read."
    )
    providers: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="What a soul's `provider` may name beside `openai` and `anthropic`.",
    )
    primary_output: str | None = Field(
        default=None,
        description="The block (or `block.path`) whose output is the answer; the last that ran.",
    )
    record_steps: bool = Field(
        default=False, description="Whether the evidence has the inputs and outputs of each block."
    )
    of_service: bool = Field(
        default=False,
        description="Whether it was registered with the service, and is confined as "
        "docs/reference/trust.md says.",
    )
    variant: dict[str, Any] = Field(
        default_factory=dict,
        description="Laid over the definition: `souls`, `blocks`, `workflow`, `limits`, or a "
        "soul's field (`model`, `provider`, `system_prompt`, `temperature`) for every soul.",
    )

    @model_validator(mode="before")
    @classmethod
    def _take_bare_definition(cls, data: Any) -> Any:
        """Take a definition that stands among the options itself."""
        if not isinstance(data, Mapping) or "definition" in data:
            return data
        own = {key: value for key, value in data.items() if key in cls.model_fields}
        bare = {key: value for key, value in data.items() if key not in own}
        return {**own, "definition": behaviour_of(bare)} if bare else data


class WorkflowTarget(Answering):
    """Runs the workflow once per item; the case's input is the workflow's, `workflow.<name>`."""

    def __init__(self, options: WorkflowOptions, context: BuildContext) -> None:
        unknown = sorted(set(options.variant) - PARTS - SOUL_KEYS)
        if unknown:
            keys = ", ".join(sorted(PARTS | SOUL_KEYS))
            raise UsageError(f"a variant of a workflow has no '{unknown[0]}'; it has {keys}")
        self.definition = _definition(options)
        self._record_steps, self._of_service = options.record_steps, options.of_service
        over = soul_fields(options.variant)
        self._workflows = {
            name: _read(apply_variant(raw, over), f"workflow '{name}'")
            for name, raw in options.workflows.items()
        }
        self._souls = PersonaProvider(options.providers, context)

    async def answer(self, work: Work) -> Evidence:
        """Return the outputs of the blocks that ran.

        Raise `WorkflowError` where a block fails for good, `SkippedError` where a limit of the run
        prevented a call, `NoExecutorError` where a block needs a model and no provider is set up.
        With `record_steps` a failure is evidence, too: its steps and its reason.
        """
        evidence = work.case.block_fixtures
        started = time.perf_counter()
        services = self.services(work)
        try:
            finished = await run_workflow(
                self.definition,
                inputs_of(work.case.input),
                services,
                None if evidence is None else Fixtures(evidence.outputs, evidence.block_metrics),
            )
        except NoExecutorError as error:
            raise NoExecutorError("not_executable", NO_EXECUTOR.format(id=work.case.id)) from error
        except WorkflowError as error:
            if services.steps is None:
                raise
            # The steps until then are the evidence that was asked for.
            failure = {"code": error.kind, "message": str(error)}
            return Evidence(output="", details={STEPS: services.steps, "failure": failure})
        answer = _evidence(finished, evidence, round((time.perf_counter() - started) * 1000, 1))
        if services.steps is None:
            return answer
        details = {**answer.details, STEPS: services.steps, "value": finished.value}
        return answer._replace(details=details)

    def services(self, work: Work) -> EngineServices:
        """Return what blocks of one work item use."""

        return EngineServices(
            ask=partial(self._souls.ask, work),
            complete=work.complete,
            folder=work.folder,
            imports=work.imports,
            store=work.run_store or MemoryRunStore(),
            check=work.check,
            workflows=self._workflows,
            steps=[] if self._record_steps else None,
            of_service=self._of_service,
        )


def inputs_of(case_input: Any) -> dict[str, Any]:
    """Return the workflow's inputs: a mapping's members; anything else stands under `input`."""
    if case_input is None:
        return {}
    if isinstance(case_input, Mapping):
        return dict(case_input)
    return {"input": case_input}


def _definition(options: WorkflowOptions) -> WorkflowDefinition:
    checks = {
        block: tuple(Assertion._make(fields) for fields in listed)
        for block, listed in options.checks.items()
    }
    raw = apply_variant(options.definition, options.variant)
    if options.primary_output is not None:
        raw["primary_output"] = options.primary_output
    return _read(raw, "the workflow", checks)


def _read(
    raw: Mapping[str, Any], what: str, checks: Mapping[str, tuple[Assertion, ...]] = NOTHING
) -> WorkflowDefinition:
    try:
        return read_definition(raw, checks)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{what} cannot be run: {reason}") from error


def _evidence(finished: Finished, fixtures: Evidence | None, took_ms: float) -> Evidence:
    """Return what the execution left.

    Its time is that of its calls, so that a replay reports what was recorded; where it made none,
    the time that it took.
    """
    details: dict[str, Any] = {"state": dict(finished.outputs)}
    if finished.errors:
        details["errors"] = list(finished.errors)
    if finished.calls:
        details["calls"] = [call.as_json() for call in finished.calls]
    details["invocations"] = dict(finished.invocations)
    measured = {} if fixtures is None else dict(fixtures.block_metrics)
    for block, duration_ms in finished.durations_ms.items():
        measured.setdefault(block, Metrics(latency_ms=duration_ms))
    metrics = sum_calls(finished.calls) if finished.calls else Metrics(latency_ms=took_ms)
    return Evidence(
        output=text_of(finished.value),
        outputs={block: text_of(value) for block, value in finished.outputs.items()},
        metrics=metrics,
        block_metrics={**measured, **by_block(finished.calls)} or NOTHING,
        details=details,
    )


HANDLE_OUTPUTS: Final = "handle_outputs"


class ReplayedBlock(WorkflowTarget):
    """Replays a block; the case's input is `{block_id, handle_inputs}`."""

    async def answer(self, work: Work) -> Evidence:
        """Return the block's output; the details have all of its output handles.

        Raises `WorkflowError` if the block fails, and what a workflow's target raises beside it.
        """
        frozen = work.case.input
        if not isinstance(frozen, Mapping) or "block_id" not in frozen:
            raise TargetError("input", "the input of a saved eval is {block_id, handle_inputs}")
        block_id, inputs = frozen["block_id"], frozen.get("handle_inputs") or {}
        values = {handle: _value(written) for handle, written in inputs.items()}
        started = time.perf_counter()
        try:
            replay = await replay_block(self.definition, block_id, values, self.services(work))
        except NoExecutorError as error:
            raise NoExecutorError("not_executable", NO_EXECUTOR.format(id=work.case.id)) from error
        took_ms = round((time.perf_counter() - started) * 1000, 1)
        details: dict[str, Any] = {
            HANDLE_OUTPUTS: {
                handle: {"type": "json", "data": value} for handle, value in replay.outputs.items()
            }
        }
        if replay.calls:
            details["calls"] = [call.as_json() for call in replay.calls]
        return Evidence(
            output=text_of(replay.value),
            metrics=sum_calls(replay.calls) if replay.calls else Metrics(latency_ms=took_ms),
            details=details,
        )


def _value(handle: Any) -> Any:
    """Return the value of a handle as the block sees it; of a file its reference."""
    if isinstance(handle, Mapping) and handle.get("type") == "file":
        return handle.get("document")
    return handle.get("data") if isinstance(handle, Mapping) else handle
