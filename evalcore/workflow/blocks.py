"""What each type of block does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Discriminator, Field, Tag

from evalcore.jsonvalues import texts_in
from evalcore.shapes import CALLABLE, NonEmpty, Seconds, Text
from evalcore.trust.secrets import literal_secrets, substituted
from evalcore.wording import suggest
from evalcore.workflow.code import CodeCall, run_python
from evalcore.workflow.conditions import condition_mistakes, holds
from evalcore.workflow.context import Context
from evalcore.workflow.definition import (
    DEFAULT_SOUL,
    MAX_DEPTH,
    Block,
    Branch,
    Carry,
    Conditions,
    Exit,
    ModelBlock,
    Names,
    Soul,
    WorkflowDefinition,
    WorkflowMistake,
    group_of,
)
from evalcore.workflow.events import BlockError, EventType
from evalcore.workflow.requests import RequestTemplate
from evalcore.workflow.routing import looker
from evalcore.workflow.values import (
    MISSING,
    WorkflowState,
    at_path,
    parsed,
    text_of,
)


async def ask(
    context: Context,
    soul_ref: str | None,
    text: str,
    *,
    part: str | None = None,
    group: int | None = None,
) -> str:
    """Return the soul's answer to a user message.

    `part` is the exit that it is for; calls of one `group` run at the same time. Raise `BlockError`
    if the provider fails or a limit is passed; `SkippedError` as it is.
    """
    definition = context.definition
    name = DEFAULT_SOUL if soul_ref is None else soul_ref
    soul = definition.souls.get(name) or Soul(id=name, model_name=definition.default_model)
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": text}]
    if soul.system_prompt:
        messages.insert(0, {"role": "system", "content": soul.system_prompt})
    call = context.call(soul.provider or "", soul.model_name or "", part, group)
    send = partial(context.services.ask, soul, messages)
    return (await context.answered(call, send)).text


class LlmBlock(ModelBlock):
    """One model call with the filled template; the output is the answer."""

    needs: ClassVar[tuple[str, ...]] = ("prompt_template",)
    inputs_suffice: ClassVar[bool] = True
    is_text: ClassVar[bool] = True

    type: Literal["llm"]
    prompt_template: str | None = None

    def templates(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the prompt."""
        if self.prompt_template is not None:
            yield ("prompt_template",), self.prompt_template

    async def run(self, context: Context) -> Any:
        """Return the answer to the filled template; without one, to what the block sees as JSON."""
        if self.prompt_template is None:
            text = text_of(context.data)
        else:
            text = context.fill(self.prompt_template, "prompt_template")
        return await ask(context, self.soul_ref, text)


class LinearBlock(ModelBlock):
    """One model call with the JSON of the block's inputs; the output is the answer."""

    is_text: ClassVar[bool] = True

    type: Literal["linear"]

    async def run(self, context: Context) -> Any:
        """Return the answer to the JSON of the inputs."""
        return await ask(context, self.soul_ref, text_of(context.data))


_INSTRUCTION: Final = (
    "Decide whether the following content is good enough. Answer with PASS or FAIL on the first "
    "line, and with your reasons on the lines after it."
)
_PASS: Final = re.compile(r"\W*pass(ed)?\b", re.IGNORECASE)


class GateBlock(ModelBlock):
    """Asks a model whether the value at `eval_key` is good enough; the output is the whole answer.

    `eval_key` is a block or a path; by default all values that the block sees.
    """

    needs: ClassVar[tuple[str, ...]] = ("eval_key",)
    inputs_suffice: ClassVar[bool] = True
    is_text: ClassVar[bool] = True

    type: Literal["gate"]
    passed: Text | None = Field(default=None, alias="pass")
    failed: Text | None = Field(default=None, alias="fail")
    eval_key: Text | None = None

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """The ways of the verdict come first."""
        verdicts = (("pass", self.passed), ("fail", self.failed))
        ways = tuple(Branch(name, None, goto, True) for name, goto in verdicts if goto)
        return (*ways, *super().branches)

    def stated_exit(self, output: Any) -> str:
        """Return the verdict: `pass` if the first line that is not blank begins with it."""
        first = next((line for line in text_of(output).splitlines() if line.strip()), "")
        return "pass" if _PASS.match(first) else "fail"

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:
        """Yield an `eval_key` that is no input and begins with no block."""
        if self.eval_key is not None and self.eval_key not in (self.inputs or {}):
            yield from names.reference(self.eval_key, ("eval_key",))

    async def run(self, context: Context) -> Any:
        """Return the whole answer on what `eval_key` names: an input, a block, a path into one."""
        content: Any = context.data
        if self.eval_key is not None:
            content = at_path(context.inputs or {}, self.eval_key)
            if content is MISSING:
                content = context.state.find(self.eval_key)
        if content is MISSING:
            names = context.state.known_names()
            raise BlockError("input", f"eval_key: there is no '{self.eval_key}'; {names}")
        return await ask(context, self.soul_ref, f"{_INSTRUCTION}\n\n{text_of(content)}")


class SynthesizeBlock(ModelBlock):
    """One model call with these outputs, each under `## id`; the output is the answer."""

    needs: ClassVar[tuple[str, ...]] = ("input_block_ids",)
    is_text: ClassVar[bool] = True

    type: Literal["synthesize"]
    input_block_ids: NonEmpty[str] | None = None

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:
        """Yield the ids that name no block."""
        for number, name in enumerate(self.input_block_ids or ()):
            yield from names.reference(name, ("input_block_ids", number))

    async def run(self, context: Context) -> Any:
        """Return the answer to the outputs, each below its block's id; declared inputs follow."""
        parts = []
        for name in self.input_block_ids or ():
            output = context.state.find(name)
            if output is MISSING:
                names = context.state.known_names()
                message = f"input_block_ids: block '{name}' has no output; {names}"
                raise BlockError("input", message)
            parts.append(f"## {name}\n{text_of(output)}")
        if context.inputs:
            parts.append(f"## inputs\n{text_of(context.inputs)}")
        return await ask(context, self.soul_ref, "\n\n".join(parts))


class DispatchBlock(ModelBlock):
    """A model call for each exit, at the same time; the output is exit → answer."""

    needs: ClassVar[tuple[str, ...]] = ("exits",)

    type: Literal["dispatch"]

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:
        """Yield repeated exits, exits without a task, and unknown souls."""
        ids: set[str] = set()
        for number, way in enumerate(self.exits or ()):
            if way.id in ids:
                yield WorkflowMistake(("exits", number, "id"), f"duplicate exit '{way.id}'")
            ids.add(way.id)
            if not way.task:
                yield WorkflowMistake(("exits", number), "an exit of a dispatch needs a 'task'")
            yield from names.soul(way.soul_ref, ("exits", number, "soul_ref"))

    def templates(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the tasks of the exits."""
        for number, way in enumerate(self.exits or ()):
            yield ("exits", number, "task"), way.task

    async def run(self, context: Context) -> Any:
        """Return the answers by exit; each stands at `block.exit` as well.

        If calls fail, the others are waited for, and the first failing exit's error is raised.
        """
        exits = self.exits or ()
        group = len(context.calls)

        async def answer(way: Exit) -> str:
            fixture = context.fixtures.get(f"{self.id}.{way.id}")
            if fixture is not None:
                return fixture
            text = context.message(way.task, f"exits.{way.id}.task")
            soul_ref = way.soul_ref or self.soul_ref
            return await ask(context, soul_ref, text, part=way.id, group=group)

        answers = await asyncio.gather(*map(answer, exits), return_exceptions=True)
        outputs: dict[str, Any] = {}
        for way, text in zip(exits, answers, strict=True):
            if isinstance(text, BaseException):
                raise text
            outputs[way.id] = text
        for name, text in outputs.items():
            context.state.outputs[f"{self.id}.{name}"] = text
        return outputs


class CodeBlock(Block):
    """Python in its own process; the output is what the function returns, as JSON."""

    needs: ClassVar[tuple[str, ...]] = ("code", "callable")

    type: Literal["code"]
    code: Text | None = None
    callable: Annotated[str, Field(pattern=CALLABLE)] | None = None
    allowed_imports: Any = Field(default=None, exclude=True)

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:  # noqa: ARG002 - the method of all types
        """Yield a second source of code."""
        if self.code and self.callable:
            yield WorkflowMistake(("callable",), "give 'code' or 'callable', not both")

    async def run(self, context: Context) -> Any:
        """Return what `main(data)` (or the function `callable` names) returns, as JSON holds it.

        The process has a minimal environment, 2 GiB of memory and the block's time. What it prints
        is not part of the output.
        """

        services = context.services
        call = CodeCall(self.code, self.callable, context.data, services.imports, services.folder)
        return await run_python(self.id, call, services)


class HttpBlock(Block):
    """One HTTP request; the output is the body, parsed if it is a JSON mapping or list."""

    needs: ClassVar[tuple[str, ...]] = ("url",)

    type: Literal["http"]
    method: str | None = None
    url: Text
    headers: dict[str, str] | None = None
    body: Any = None
    body_template: str | None = None
    timeout: Seconds | None = None

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:  # noqa: ARG002 - the method of all types
        """Yield the secrets that the block holds literally."""
        bodies = {"body": self.body, "body_template": self.body_template}
        for literal in literal_secrets(self.headers, self.url, bodies):
            yield WorkflowMistake(literal.path, literal.message())

    def templates(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the URL and the texts of headers and body, without references to variables."""
        key = "body" if self.body_template is None else "body_template"
        parts = {"url": self.url, "headers": self.headers, key: getattr(self, key)}
        for loc, text in texts_in(parts):
            yield loc, substituted(text, lambda _: " ")

    async def run(self, context: Context) -> Any:
        """Return the body of the answer: a mapping or list if it is JSON of one, else its text.

        `${{ NAME }}` in `url`, `headers` and `body` is read when the request is made, and covered
        wherever it turns up.
        """
        template = RequestTemplate(context)
        written = self.body if self.body_template is None else self.body_template
        if isinstance(written, str):
            body = parsed(template.text(written, "body"))
        else:
            body = template.body(written)
        method = self.method or ("GET" if body is None else "POST")
        request = template.request(method, self.url, self.headers or {}, body, self.timeout)
        return parsed(await context.request(request))


def _is_mapping(value: object) -> str:
    return "<mapping>" if isinstance(value, dict) else "<flag>"


class LoopBlock(Block):
    """Runs these blocks in their order, up to `max_rounds` times; the output is the last one's."""

    needs: ClassVar[tuple[str, ...]] = ("inner_block_refs",)

    type: Literal["loop"]
    inner_block_refs: NonEmpty[str]
    max_rounds: Annotated[int, Field(ge=1, le=1000)] = 5
    break_condition: Conditions | None = None
    carry_context: (
        Annotated[
            Annotated[bool, Tag("<flag>")] | Annotated[Carry, Tag("<mapping>")],
            Discriminator(_is_mapping),
        ]
        | None
    ) = None

    @cached_property
    def carry(self) -> Carry | None:
        """What is carried from round to round; None if nothing is."""
        written = Carry() if self.carry_context is True else self.carry_context
        return written if isinstance(written, Carry) and written.enabled else None

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:
        """Yield unknown inner blocks, a loop within itself, and what is wrong with conditions."""
        inner = self.inner_block_refs
        for number, name in enumerate(inner):
            yield from names.block(name, ("inner_block_refs", number))
            if _contains(names.blocks, name, self.id, frozenset()):
                message = f"the loop '{self.id}' would run itself"
                yield WorkflowMistake(("inner_block_refs", number), message)
        yield from condition_mistakes(self.break_condition, ("break_condition",))
        if isinstance(self.carry_context, Carry):
            for number, name in enumerate(self.carry_context.source_blocks or ()):
                if name not in inner:
                    message = f"'{name}' is not one of 'inner_block_refs'.{suggest(name, inner)}"
                    yield WorkflowMistake(("carry_context", "source_blocks", number), message)

    async def run(self, context: Context) -> Any:
        """Return the output of the last inner block that ran.

        It ends after `max_rounds`, or when `break_condition` holds for that output.
        """
        until = group_of(self.break_condition)
        shared = context.state.shared
        history: list[dict[str, Any]] = []
        value: Any = None
        reason, number = "max_rounds reached", 0
        if self.carry is not None:
            shared[self.carry.inject_as] = [] if self.carry.mode == "all" else {}
        for number in range(1, self.max_rounds + 1):
            shared[f"{self.id}_round"] = number
            await context.log.add(EventType.LOOP_ROUND, context.path, round=number)
            for name in self.inner_block_refs:
                value = await context.run_inner(name)
            self._carry(context, history)
            if until is not None and holds(until, looker(value, context.state)):
                reason = "condition met"
                break
        shared[f"__loop__{self.id}"] = {
            "rounds_completed": number,
            "broke_early": reason != "max_rounds reached",
            "break_reason": reason,
        }
        return value

    def _carry(self, context: Context, history: list[dict[str, Any]]) -> None:
        carry = self.carry
        if carry is None:
            return
        outputs = context.state.outputs
        carried = carry.source_blocks or self.inner_block_refs
        history.append({name: outputs[name] for name in carried if name in outputs})
        latest = list(history) if carry.mode == "all" else history[-1]
        context.state.shared[carry.inject_as] = latest


def _contains(blocks: Mapping[str, Block], name: str, loop: str, passed: frozenset[str]) -> bool:
    if name == loop:
        return True
    block = blocks.get(name)
    inner = block.inner_block_refs if isinstance(block, LoopBlock) else ()
    below = [other for other in inner if other not in passed]
    return any(_contains(blocks, other, loop, passed | {name}) for other in below)


class SubworkflowBlock(Block):
    """Runs another workflow, which sees only its `inputs`; the output is what `outputs` takes."""

    needs: ClassVar[tuple[str, ...]] = ("workflow_ref",)
    declares_outputs: ClassVar[bool] = False

    type: Literal["workflow"]
    workflow_ref: Text
    max_depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] = MAX_DEPTH
    on_error: Literal["raise", "catch"] = "raise"

    async def run(self, context: Context) -> Any:
        """Return what `outputs` takes from the other workflow, by name; else its primary output.

        The other workflow knows only the declared inputs. With `on_error: catch` its failure is the
        output `{exit_handle: error, error}`.
        """
        reference = self.workflow_ref
        definition = context.services.workflows.get(reference)
        if definition is None:
            names = ", ".join(context.services.workflows) or "none"
            message = f"workflow_ref: there is no workflow '{reference}'; known: {names}"
            raise BlockError("workflow", message)
        inputs = context.inputs or {}
        _check_inputs(definition, inputs)
        try:
            value, state = await context.run_child(definition, inputs, self.max_depth)
        except BlockError as error:
            if self.on_error == "catch" and error.kind != "limit":
                return {"exit_handle": "error", "error": str(error)}
            raise
        if not self.outputs:
            return value
        return {
            name: _output(definition, state, source, name) for name, source in self.outputs.items()
        }


def _check_inputs(definition: WorkflowDefinition, inputs: Mapping[str, Any]) -> None:
    """Raise `BlockError` for an input that the other workflow requires and does not get."""
    for name, item in definition.inputs.items():
        if item.required and item.default is None and name not in inputs:
            message = f"workflow '{definition.name}' needs the input '{name}'"
            raise BlockError("input", message)


def _output(definition: WorkflowDefinition, state: WorkflowState, source: Any, name: str) -> Any:
    path = source if isinstance(source, str) else source["from"]
    value = state.find(path)
    if value is MISSING:
        message = f"outputs.{name}: workflow '{definition.name}' has no '{path}'"
        raise BlockError("output", f"{message}; {state.known_names()}")
    return value
