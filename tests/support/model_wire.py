"""How the tests' model server reads requests and writes answers, protocol by protocol."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from aiohttp import web


class Question(NamedTuple):
    """What a script answers: `prompt` is the last user message, `text` all messages together."""

    body: Any
    model: str
    prompt: str
    text: str
    stream: bool


class Answer(NamedTuple):
    """An answer; tool calls are `{name, arguments}`. Tokens: the words, where not given."""

    text: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Wire(NamedTuple):
    """A protocol: reads the question, writes a whole answer or its events."""

    question: Callable[[Any, web.Request], Question]
    whole: Callable[[Question, Answer], Any]
    events: Callable[[Question, Answer], Iterator[bytes]]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", part.get("content", ""))) for part in parts)


def _question(body: Any, request: web.Request) -> Question:
    raw = body if isinstance(body, dict) else {}
    messages = raw.get("messages") or []
    if isinstance(raw.get("system"), str):
        messages = [{"role": "system", "content": raw["system"]}, *messages]
    texts = [(message.get("role"), _text(message.get("content"))) for message in messages]
    prompt = next((text for role, text in reversed(texts) if role == "user"), "")
    everything = "\n".join(text for _, text in texts)
    return Question(raw, str(raw.get("model", "")), prompt, everything, bool(raw.get("stream")))


def _openai_calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{place}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for place, call in enumerate(answer.tool_calls)
    ]


def _openai_usage(answer: Answer) -> dict[str, int]:
    given, made = answer.input_tokens or 0, answer.output_tokens or 0
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def _openai_whole(question: Question, answer: Answer) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool_calls:
        message["tool_calls"] = _openai_calls(answer)
    reason = answer.finish_reason or ("tool_calls" if answer.tool_calls else "stop")
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": question.model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _openai_usage(answer),
    }


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if place == 0 else f" {word}" for place, word in enumerate(words)] if text else []


def _openai_events(question: Question, answer: Answer) -> Iterator[bytes]:
    def event(choices: list[Any], **more: Any) -> bytes:
        chunk = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": question.model,
        }
        return b"data: " + json.dumps({**chunk, "choices": choices, **more}).encode() + b"\n\n"

    def delta(**values: Any) -> bytes:
        return event([{"index": 0, "delta": values, "finish_reason": None}])

    yield delta(role="assistant", content="")
    for piece in _pieces(answer.text):
        yield delta(content=piece)
    for place, call in enumerate(_openai_calls(answer)):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        first = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield delta(tool_calls=[{"index": place, **first}])
        for part in (arguments[:half], arguments[half:]):
            yield delta(tool_calls=[{"index": place, "function": {"arguments": part}}])
    reason = answer.finish_reason or ("tool_calls" if answer.tool_calls else "stop")
    yield event([{"index": 0, "delta": {}, "finish_reason": reason}])
    if (question.body.get("stream_options") or {}).get("include_usage"):
        yield event([], usage=_openai_usage(answer))
    yield b"data: [DONE]\n\n"


def _anthropic_blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
    blocks += [
        {
            "type": "tool_use",
            "id": f"toolu_{place}",
            "name": call["name"],
            "input": call["arguments"],
        }
        for place, call in enumerate(answer.tool_calls)
    ]
    return blocks


def _anthropic_reason(answer: Answer) -> str:
    return answer.finish_reason or ("tool_use" if answer.tool_calls else "end_turn")


def _anthropic_whole(question: Question, answer: Answer) -> Any:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": question.model,
        "content": _anthropic_blocks(answer),
        "stop_reason": _anthropic_reason(answer),
        "stop_sequence": None,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens},
    }


def _anthropic_events(question: Question, answer: Answer) -> Iterator[bytes]:
    def event(kind: str, **values: Any) -> bytes:
        data = json.dumps({"type": kind, **values})
        return f"event: {kind}\ndata: {data}\n\n".encode()

    start = {**_anthropic_whole(question, answer), "content": [], "stop_reason": None}
    start["usage"] = {"input_tokens": answer.input_tokens, "output_tokens": 1}
    yield event("message_start", message=start)
    yield event("ping")
    for place, block in enumerate(_anthropic_blocks(answer)):
        if block["type"] == "text":
            yield event("content_block_start", index=place, content_block={**block, "text": ""})
            for piece in _pieces(block["text"]):
                text = {"type": "text_delta", "text": piece}
                yield event("content_block_delta", index=place, delta=text)
        else:
            yield event("content_block_start", index=place, content_block={**block, "input": {}})
            arguments = json.dumps(block["input"])
            half = len(arguments) // 2
            for part in (arguments[:half], arguments[half:]):
                delta = {"type": "input_json_delta", "partial_json": part}
                yield event("content_block_delta", index=place, delta=delta)
        yield event("content_block_stop", index=place)
    ending = {"stop_reason": _anthropic_reason(answer), "stop_sequence": None}
    yield event("message_delta", delta=ending, usage={"output_tokens": answer.output_tokens})
    yield event("message_stop")


def embedding(text: str, size: int = 64) -> list[float]:
    """Return a vector of length 1 in which each lower-cased word has its place by its hash."""
    vector = [0.0] * size
    for word in text.lower().split():
        vector[int(hashlib.sha256(word.encode()).hexdigest(), 16) % size] += 1.0
    length = sum(value * value for value in vector) ** 0.5 or 1.0
    return [value / length for value in vector]


def _inputs(body: Any) -> list[str]:
    given = body.get("input", "") if isinstance(body, dict) else ""
    return [given] if isinstance(given, str) else [str(item) for item in given]


def _embedding_question(body: Any, request: web.Request) -> Question:
    raw = body if isinstance(body, dict) else {}
    text = "\n".join(_inputs(raw))
    return Question(raw, str(raw.get("model", "")), text, text, stream=False)


def _embeddings_whole(question: Question, answer: Answer) -> Any:
    inputs = _inputs(question.body)
    data = [
        {"object": "embedding", "index": place, "embedding": embedding(text)}
        for place, text in enumerate(inputs)
    ]
    tokens = answer.input_tokens or 0
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": question.model, "data": data, "usage": usage}


def _echo_question(body: Any, request: web.Request) -> Question:
    text = body if isinstance(body, str) else json.dumps(body)
    seen = {
        "method": request.method,
        "path": request.path_qs,
        "headers": dict(request.headers),
        "body": body,
    }
    return Question(seen, "", text, text, stream=False)


def _echo_whole(question: Question, answer: Answer) -> Any:
    return {**question.body, "answer": answer.text}


def _no_events(question: Question, answer: Answer) -> Iterator[bytes]:
    yield from ()


OPENAI = Wire(_question, _openai_whole, _openai_events)
ANTHROPIC = Wire(_question, _anthropic_whole, _anthropic_events)
EMBEDDINGS = Wire(_embedding_question, _embeddings_whole, _no_events)
ECHO = Wire(_echo_question, _echo_whole, _no_events)
