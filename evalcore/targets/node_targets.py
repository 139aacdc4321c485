"""Nodes whose type is not registered: the target of that name answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from evalcore.errors import EvalError, TargetError
from evalcore.model.exchange import Complete
from evalcore.model.target import DEFAULT_VARIANT, Target
from evalcore.targets.build_context import BuildContext
from evalcore.targets.case_messages import json_text, messages_of, prompt_of
from evalcore.targets.node_calls import NodeCalls, NodeQuestion, TargetAnswer
from evalcore.targets.registry import build
from evalcore.targets.work import Runnable, Work
from evalcore.workflow.events import ProviderCall

_ALONE = ("prompt", "messages")


class NodeTargets:
    """The targets that a flow's configuration has, asked for one work item."""

    def __init__(
        self, targets: Mapping[str, Mapping[str, Any]], context: BuildContext, work: Work
    ) -> None:
        """Take `{kind, options}` by name."""
        self._targets, self._context, self._work = targets, context, work

    async def ask(self, question: NodeQuestion) -> TargetAnswer | None:
        """Return the target's answer to a node's input; None if no target is called so.

        A mapping `{prompt}` or `{messages}` is what it holds. The node's configuration is laid
        over the target's options. Raises `TargetError`.
        """
        entry = self._targets.get(question.type)
        if entry is None:
            return None
        target = Target(question.type, entry["kind"], dict(entry["options"]))
        runnable = self._built(target, question.config)
        calls: list[ProviderCall] = []
        complete = NodeCalls(self._work.complete, question.node, calls)
        work = self._work_on(_case_input(question.input), complete)
        return TargetAnswer(await runnable.answer(work), tuple(calls))

    def _built(self, target: Target, config: Mapping[str, Any]) -> Runnable:
        context = self._context
        variant = replace(DEFAULT_VARIANT, config=config)
        where = f"target '{target.name}'"
        try:
            return build(target, variant, folder=context.folder, environment=context.surroundings)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            option = ".".join(str(part) for part in first["loc"])
            raise TargetError("target", f"{where}: {option}: {first['msg']}") from error
        except TargetError:
            raise
        except (EvalError, ValueError) as error:
            raise TargetError("target", f"{where}: {error}") from error

    def _work_on(self, value: Any, complete: Complete) -> Work:
        try:
            messages = messages_of(value)
        except ValueError:
            messages = messages_of(json_text(value))
        case = self._work.case._replace(input=value)
        return replace(
            self._work,
            case=case,
            messages=messages,
            prompt=prompt_of(messages),
            complete=complete,
        )


def _case_input(value: Any) -> Any:
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, inner),) = value.items()
        if key in _ALONE and isinstance(inner, str | list):
            return inner
    return value
