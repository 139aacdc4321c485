"""The target `workflow`: the project's own engine runs a workflow."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evalcore.errors import UsageError
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import NOTHING, Evidence, Metrics
from evalcore.model.exchange import Endpoint
from evalcore.model.suite import Case
from evalcore.targets.build_context import BuildContext
from evalcore.targets.persona_provider import PersonaProvider
from evalcore.targets.work import Work
from evalcore.workflow.context import EngineServices, Offer, SoulAnswer
from evalcore.workflow.definition import (
    PARTS,
    SOUL_KEYS,
    Soul,
    WorkflowDefinition,
    apply_variant,
    certain_souls,
    soul_fields,
)
from evalcore.workflow.engine import Finished, Fixtures, run_workflow
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

# Where the evidence of an execution that records its steps has them.
STEPS: Final = "steps"


class WorkflowOptions(BaseModel):
    """Options of a target of kind `workflow`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


class WorkflowTarget:
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

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return True: a workflow takes its time."""
        return True

    def ready_endpoints(self, case: Case, mode: str) -> Iterable[Endpoint]:
        """Return the endpoints of the models that every execution asks; as `PersonaProvider`."""
        if case.block_fixtures is not None:
            return ()
        return self._souls.ready_endpoints(certain_souls(self.definition), case, mode)

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
            raise NoExecutorError(NO_EXECUTOR.format(id=work.case.id)) from error
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

        async def ask(
            soul: Soul, messages: Sequence[Mapping[str, Any]], offer: Offer
        ) -> SoulAnswer:
            return await self._souls.ask(work, soul, messages, offer)

        return EngineServices(
            ask=ask,
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
