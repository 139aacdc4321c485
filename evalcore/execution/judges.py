"""The judges of a run: targets of its suite, asked for one work item."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from evalcore.checks.base import CheckContext
from evalcore.errors import EvalError, TargetError
from evalcore.judging.asking import NO_JUDGE, Embedded, JudgeAnswer, JudgeQuestion, JudgeSpec
from evalcore.judging.prompts import images_of
from evalcore.model.exchange import (
    Complete,
    Cut,
    Reply,
    Request,
    call_notes,
    cut_of,
)
from evalcore.model.identity import EMBEDDING_TARGETS, judge_name
from evalcore.model.mode import Mode
from evalcore.model.suite import Case, SuiteDefinition
from evalcore.model.target import Target, Variant
from evalcore.planning.expand import WorkItem
from evalcore.targets.registry import build, kind_facts
from evalcore.targets.work import Runnable, Work

_EMBEDDING_MODEL: Final = "text-embedding-3-small"
# Models that think before they answer take no temperature.
_NO_TEMPERATURE: Final = ("o1", "o3", "o4", "gpt-5")


class RunJudges:
    """The judges that a suite's targets are, each built once."""

    def __init__(
        self,
        suite: SuiteDefinition,
        context: CheckContext,
        mode: str = Mode.LIVE,
    ) -> None:
        self.suite, self.context, self.mode = suite, context, mode
        self._built: dict[JudgeSpec, Runnable] = {}

    def runnable(self, spec: JudgeSpec, target: Target) -> Runnable:
        """Return the judge, ready to answer; raise `TargetError` if it cannot be built."""
        key = JudgeSpec(target.name, spec.model, spec.temperature)
        if key not in self._built:
            config = {"model": spec.model, "temperature": spec.temperature}
            laid_over = {name: value for name, value in config.items() if value is not None}
            variant = Variant("judge", config=laid_over)
            try:
                self._built[key] = build(target, variant, folder=self.context.folder)
            except TargetError:
                raise
            except (EvalError, ValueError) as error:
                raise TargetError("judge", f"judge '{target.name}': {error}") from error
        return self._built[key]


class ItemJudges:
    """Asks the judges of one work item (`judging.asking.Judges`)."""

    def __init__(self, run: RunJudges, item: WorkItem, complete: Complete) -> None:
        self._run, self._item, self._complete = run, item, complete

    def _target(self, spec: JudgeSpec) -> Target:
        """Return the judge's target; raise `TargetError` if there is none."""
        suite = self._run.suite
        name = judge_name(spec.name, self._item.target, suite)
        if name is None:
            raise TargetError("judge", NO_JUDGE)
        target = suite.targets.get(name)
        if target is None:
            targets = ", ".join(sorted(suite.targets)) or "none"
            raise TargetError(
                "judge", f"judge '{name}' is no target of the suite; known: {targets}"
            )
        return target

    def _work(self, question: JudgeQuestion, complete: Complete, kind: str) -> Work:
        """Return the question as work of a target; only models read its system message."""
        run, item, is_model = self._run, self._item, kind_facts(kind).asks_model
        parts = [question.user] if is_model else [question.system, question.user]
        text = "\n\n".join(part for part in parts if part)
        system = {"role": "system", "content": question.system}
        images = images_of(item.case.input) if is_model else []
        content = [{"type": "text", "value": text}, *images] if images else text
        user = {"role": "user", "content": content}
        messages = (system, user) if is_model and question.system else (user,)
        return Work(
            case=Case(id=item.case.id, input=list(messages)),
            variant=item.variant,
            iteration=item.iteration,
            item=item.number,
            prompt=text,
            messages=messages,
            item_timeout_s=run.suite.limits.timeout_s,
            complete=complete,
            imports=run.context.imports,
            folder=run.context.folder,
            mode=run.mode,
            objects=run.context.objects,
        )

    async def ask(self, spec: JudgeSpec, question: JudgeQuestion) -> JudgeAnswer:
        """Return the judge's reply; raise `TargetError` where there is none, or `SkippedError`."""
        target = self._target(spec)
        runnable = self._run.runnable(spec, target)
        work = self._work(question, _AsJudge(self._complete, question.schema), target.kind)
        bounded = self._run.suite.limits.timeout_s is not None
        limit_s = None if bounded else kind_facts(target.kind).item_timeout_s
        try:
            async with asyncio.timeout(limit_s) as timer:
                evidence = await runnable.answer(work)
        except EvalError:
            raise
        except TimeoutError as error:
            how = f" within {limit_s:g} s (limits.timeout_s of the suite raises it)"
            reason = how if timer.expired() and limit_s is not None else f": {error}"
            raise TargetError("judge", f"judge '{target.name}' gave no output{reason}") from error
        except Exception as error:
            # A target is foreign code; the assertion is in error.
            reason = f"{type(error).__name__}: {error}"
            raise TargetError("judge", f"judge '{target.name}': {reason}") from error
        if evidence.output is None:
            raise TargetError("judge", f"judge '{target.name}' gave no output")
        calls = evidence.details.get("calls") or ()
        model = calls[-1].get("model") if calls else spec.model
        unpriced = calls[-1].get("unpriced") if calls else None
        return JudgeAnswer(evidence.output, target.name, model, evidence.metrics, unpriced)

    async def embed(self, spec: JudgeSpec, texts: Sequence[str]) -> Embedded:
        """Return a vector for each text; raise as `ask` does.

        Without a named target: the suite's that is called so, the item's own, its judge, or OpenAI
        by the environment, with a model of OpenAI's. One that is named embeds with its own model.
        """
        target, model = self._embedding_target(spec)
        runnable: Any = self._run.runnable(JudgeSpec(target.name), target)
        first = getattr(runnable, "first", runnable)
        if not hasattr(first, "embedding_request"):
            raise TargetError("judge", f"target '{target.name}' ({target.kind}) embeds no texts")
        request = first.embedding_request(texts, self._run.mode, model)
        reply = await self._complete(request)
        vectors = tuple(tuple(vector) for vector in orjson.loads(reply.text))
        unpriced = call_notes(request, reply).get("unpriced")
        return Embedded(vectors, reply.model, reply.metrics, unpriced)

    def _embedding_target(self, spec: JudgeSpec) -> tuple[Target, str | None]:
        if spec.name is not None:
            return self._target(spec), spec.model
        for name in EMBEDDING_TARGETS:
            if name in self._run.suite.targets:
                return self._run.suite.targets[name], spec.model
        judge = self._run.suite.targets.get(
            judge_name(None, self._item.target, self._run.suite) or ""
        )
        for target in (self._item.target, judge):
            if target is not None and target.kind == "openai":
                return target, spec.model or _EMBEDDING_MODEL
        model = spec.model or _EMBEDDING_MODEL
        return Target("openai", "openai", {"model": model}), model


class _AsJudge:
    """Asks as a judge asks: at temperature 0, for JSON of a schema, where the target says nothing.

    A provider that refuses either is asked again without (`providers.failures.Refusals`).
    """

    def __init__(self, complete: Complete, schema: Mapping[str, Any]) -> None:
        self._send, self._schema = complete, schema

    async def _complete(self, request: Request) -> Reply:
        """Return the reply; raise `TargetError` if it is cut."""
        reply = await self._send(request)
        if cut_of(reply.finish_reason) is not Cut.LENGTH:
            return reply
        reason = f"its reply was cut ({reply.finish_reason}): raise max_tokens of the judge"
        raise TargetError("truncated", f"judge '{request.endpoint.provider}': {reason}")

    async def __call__(self, request: Request) -> Reply:
        """Return the reply; raise as `Complete` does."""
        if not kind_facts(request.endpoint.protocol).asks_model:
            return await self._complete(request)
        parameters = request.parameters
        thinks = request.model.rpartition("/")[2].startswith(_NO_TEMPERATURE)
        if "temperature" not in parameters and not thinks:
            parameters = {"temperature": 0, **parameters}
            request = replace(request, parameters=parameters, added=frozenset({"temperature"}))
        if not self._schema:
            return await self._complete(request)
        if request.response_schema is not None or "response_format" in parameters or request.tools:
            return await self._complete(request)
        added = request.added | {"response_schema"}
        return await self._complete(replace(request, response_schema=self._schema, added=added))
