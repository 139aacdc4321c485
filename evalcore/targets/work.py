"""What a target is given for one work item, its input as messages, and how it answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from pydantic import BaseModel, ConfigDict

from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.judging.prompts import plain_messages
from evalcore.model.evidence import NOTHING, Evidence
from evalcore.model.exchange import Complete, no_provider
from evalcore.model.suite import Case
from evalcore.model.target import Variant
from evalcore.trust.files import with_file_texts
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.workflow.context import Check
    from evalcore.workflow.run_store import RunStore


Message = Mapping[str, Any]

_ROLES: Final = ("system", "user", "assistant", "tool")
_SEGMENTS: Final = ("text", "file", "image")


def input_messages(case_input: Any, *, any_value: bool) -> tuple[Message, ...]:
    """Return the messages of a case's input; raise `ValueError` as `messages_of` does.

    Where the input may be `any_value`, a list that is no messages is one user message of its JSON.
    """
    try:
        return messages_of(case_input)
    except ValueError:
        if not any_value:
            raise
        return messages_of(json_text(case_input))


def messages_of(case_input: Any) -> tuple[Message, ...]:
    """Return the messages of a case's input, each with `role` and `content`.

    A string is one user message, an array is taken as messages (further keys of a message stay),
    any other JSON value is one user message that holds its JSON, None is no message. Raise
    `ValueError` that says which message is misshapen.
    """
    if case_input is None:
        return ()
    if isinstance(case_input, str):
        return ({"role": "user", "content": case_input},)
    if not isinstance(case_input, list | tuple):
        return ({"role": "user", "content": json_text(case_input)},)
    if not case_input:
        raise ValueError("an array of messages must not be empty")
    case_input = plain_messages(case_input)
    for position, message in enumerate(case_input):
        problem = _problem(message)
        if problem is not None:
            raise ValueError(f"message {position}: {problem}")
    return tuple(case_input)


def prompt_of(messages: tuple[Message, ...]) -> str:
    """Return the text of the last user message, "" if there is none.

    Segments stand on lines of their own, a file or an image as `[file: NAME]`.
    """
    for message in reversed(messages):
        if message["role"] == "user":
            return _text_of(message["content"])
    return ""


def json_text(value: Any) -> str:
    """Return `value` as JSON text, in the order of its keys, characters unescaped.

    Raise `ValueError` or `TypeError` for what JSON cannot hold (NaN, foreign objects).
    """
    plain = dict(value) if isinstance(value, Mapping) else value
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        segment["value"]
        if segment["type"] == "text"
        else f"[{segment['type']}: {segment['value']}]"
        for segment in content
    )


def _problem(message: Any) -> str | None:
    if not isinstance(message, Mapping):
        return "it must be a mapping with 'role' and 'content'"
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        return f"role must be one of {', '.join(_ROLES)}, not {role!r}"
    if isinstance(content, str):
        return None
    if not isinstance(content, list | tuple) or not content:
        return "content must be a string or a list of segments {type, value}"
    for position, segment in enumerate(content):
        if not isinstance(segment, Mapping) or segment.get("type") not in _SEGMENTS:
            return f"content[{position}].type must be one of {', '.join(_SEGMENTS)}"
        if not isinstance(segment.get("value"), str):
            return f"content[{position}].value must be a string"
    return None


@dataclass(frozen=True, slots=True)
class Work:
    """One work item as a target sees it.

    `iteration` counts from 0, `item` is the item's place in the plan. `messages` and `prompt` are
    `messages_of` the case's input and `prompt_of` those. `folder` is the suite's folder. The
    caller enforces `item_timeout_s`; a target that starts a process ends it at that time as well.
    `complete` calls providers. `objects` are what a suite made in Python refers to by name.
    `run_store` takes the events of an executed workflow, `check` grades an output of one of its
    blocks; None where they are not needed. `workspace` is the folder that the target works in, if
    the test has one. `workers` run Python in processes of its own; the item's time limit does not
    run while `standing_still` is entered.
    """

    case: Case
    variant: Variant
    iteration: int
    item: int
    prompt: str
    messages: tuple[Message, ...]
    folder: Path
    imports: ImportPolicy
    item_timeout_s: float | None = None
    mode: str = "live"
    complete: Complete = no_provider
    objects: Mapping[str, Any] = NOTHING
    run_store: RunStore | None = None
    check: Check | None = None
    workspace: Path | None = None
    workers: Workers = NO_WORKERS
    standing_still: Callable[[], AbstractContextManager[object]] = nullcontext

    def alone(self) -> Work:
        """Return the work without what it has of this process."""
        alone = replace(self, complete=no_provider, objects=NOTHING, run_store=None, check=None)
        return replace(alone, workers=NO_WORKERS, standing_still=nullcontext)


class Runnable(Protocol):
    """A target with its options, ready to answer any number of items at the same time."""

    def waits(self, case: Case) -> bool:
        """Whether answering the case may suspend; an answer without needs no event loop."""

    async def answer(self, work: Work) -> Evidence:
        """Return the evidence.

        Raises `TargetError` where there is no output; its kind and message stand in the item's row.
        """


class TargetOptions(BaseModel):
    """The options of a kind of targets."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
        protected_namespaces=(),
    )


class Answering:
    """A target that takes its time, or none."""

    takes_time: ClassVar[bool] = True

    def waits(self, case: Case) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Whether the answers take time."""
        return self.takes_time


def with_attachments(work: Work) -> Work:
    """Return the work with the text of attached files in its messages and its prompt."""
    messages = with_file_texts(work.messages, work.folder)
    if messages is work.messages:
        return work
    return replace(work, messages=tuple(messages), prompt=prompt_of(messages))
