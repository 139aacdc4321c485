"""What a program that grades reads: JSON in the shape that AgentV's SDK expects.

The shape is that of v4.42.4 with fields of ours; `docs/reference/graders.md` lists it, and decision
0065 has its reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from evalcore.checks.file_diff import unified_diff
from evalcore.checks.subject import Subject
from evalcore.errors import EvalError
from evalcore.judging.prompts import conversation_text, expected_text
from evalcore.model.evidence import Metrics
from evalcore.model.messages import message_array
from evalcore.trust.attachments import attached_paths, with_file_texts, with_files

OutputAs = Literal["text", "messages"]
_ARGUMENTS: Final = ("input", "arguments", "args")
_FAILED: Final = frozenset({"error", "timeout", "cancelled"})


def payload_of(
    config: Mapping[str, Any] | None, subject: Subject, output_as: OutputAs = "text"
) -> dict[str, Any]:
    """Return what the program reads (docs/reference/graders.md, `code-grader`).

    `output_as` messages is the shape of AgentV before v4.38: `output` has the messages of the
    answer.
    """
    case, metrics, folder = subject.case, subject.metrics, subject.context.folder
    input_messages = with_files(_messages(case.input, "user"), folder)
    answered = _answered(subject)
    trace = _trace(subject, [*input_messages, *answered], answered)
    expected = _messages(case.expected_output, "assistant")
    text = {
        "input_text": conversation_text(with_file_texts(case.input, folder)),
        "output_text": subject.output,
        "expected_output_text": expected_text(case.expected_output),
    }
    return {
        "criteria": case.criteria or "",
        "input": input_messages,
        "output": answered if output_as == "messages" else subject.output,
        "expected_output": with_files(expected, folder),
        "messages": trace["messages"],
        "output_messages": answered,
        **text,
        **(_before_4_9(text) if output_as == "messages" else {}),
        "input_files": _paths(case.input, folder),
        "metadata": dict(case.metadata),
        "trace": trace,
        "trace_summary": {name: trace[name] for name in _SUMMARY if name in trace},
        "token_usage": _usage(metrics),
        "cost_usd": metrics.cost_usd,
        "duration_ms": metrics.latency_ms,
        "start_time": None,
        "end_time": None,
        "file_changes": unified_diff(subject.evidence),
        "workspace_path": _workspace_of(subject),
        "config": config,
    }


_SUMMARY: Final = ("event_count", "tool_calls", "error_count", "tool_durations", "llm_call_count")


def _messages(value: Any, role: str) -> list[dict[str, Any]]:
    return [_message(message) for message in message_array(value, role)]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without what is null, its tool calls as `{tool, input, output, id}`."""
    plain = {key: value for key, value in message.items() if value is not None}
    if "tool_calls" in plain:
        calls = plain["tool_calls"]
        plain["tool_calls"] = [_call(call) for call in calls if isinstance(call, Mapping)]
    return plain


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    inner = function if isinstance(function, Mapping) else call
    left = {"function", "name", *_ARGUMENTS}
    plain = {key: value for key, value in call.items() if key not in left and value is not None}
    arguments = next((inner[key] for key in _ARGUMENTS if inner.get(key) is not None), None)
    with_input = {} if arguments is None else {"input": arguments}
    return {**plain, "tool": str(call.get("tool") or inner.get("name") or ""), **with_input}


def _answered(subject: Subject) -> list[dict[str, Any]]:
    """Return the messages of the answer; the last one of the assistant has a content."""
    left = subject.evidence.details.get("messages")
    listed = left if isinstance(left, list | tuple) else ()
    messages = [_message(each) for each in listed if isinstance(each, Mapping) and "role" in each]
    return messages or [{"role": "assistant", "content": subject.output}]


def _paths(value: Any, folder: Path) -> list[str]:
    try:
        return [str(path) for path in attached_paths(value, folder)]
    except EvalError:  # removed since the suite was loaded
        return []


def _usage(metrics: Metrics) -> dict[str, int] | None:
    if metrics.total_tokens is None:
        return None
    usage = {"input": metrics.input_tokens or 0, "output": metrics.output_tokens or 0}
    return usage | metrics.usage_parts


def _trace(
    subject: Subject, messages: Sequence[Mapping[str, Any]], answered: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    calls = [call for message in answered for call in message.get("tool_calls", ())]
    counts = Counter(call["tool"] for call in calls)
    durations: dict[str, list[float]] = {}
    for call in calls:
        if isinstance(call.get("duration_ms"), int | float):
            durations.setdefault(call["tool"], []).append(call["duration_ms"])
    details, metrics = subject.evidence.details, subject.metrics
    measures = {
        "token_usage": _usage(metrics),
        "cost_usd": metrics.cost_usd,
        "duration_ms": metrics.latency_ms,
    }
    return {
        "event_count": len(calls),
        "tool_calls": dict(counts),
        "tool_names": sorted(counts),
        "tool_calls_by_name": dict(counts),
        "error_count": sum(1 for call in calls if call.get("status") in _FAILED),
        **({"tool_durations": durations} if durations else {}),
        "llm_call_count": sum(1 for message in answered if message["role"] == "assistant"),
        "messages": list(messages),
        "events": list(_events(messages)),
        **{name: value for name, value in measures.items() if value is not None},
        "calls": list(details.get("calls") or ()),
        "errors": list(details.get("errors") or ()),
    }


def _events(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield an event for each message and each of its tool calls, in their order."""
    ordinal = 0
    for index, message in enumerate(messages):
        plain = {key: message[key] for key in ("role", "content") if key in message}
        name = f"message-{index}"
        yield {"event_id": name, "ordinal": ordinal, "type": "message", "message": plain}
        ordinal += 1
        for position, call in enumerate(message.get("tool_calls", ())):
            tool = {key: call[key] for key in ("input", "output", "status") if key in call}
            yield {
                "event_id": f"{name}-tool-{position}",
                "parent_event_id": name,
                "ordinal": ordinal,
                "type": "tool_call",
                "tool": {"name": call["tool"], **tool},
            }
            ordinal += 1


def _before_4_9(text: Mapping[str, str]) -> dict[str, Any]:
    """Return the names that older SDKs require."""
    return {
        "question": text["input_text"],
        "answer": text["output_text"],
        "candidate_answer": text["output_text"],
        "reference_answer": text["expected_output_text"],
        "guideline_files": [],
    }


def _workspace_of(subject: Subject) -> str | None:
    """Return the folder that the target worked in, or the one that an earlier run left."""
    if subject.context.workspace is not None:
        return str(subject.context.workspace)
    left = subject.evidence.details.get("workspace")
    return left if isinstance(left, str) and Path(left).is_dir() else None
