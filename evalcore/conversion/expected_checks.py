"""How an answer is compared with the expected one, where the file itself does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evalcore.conversion.converted import Notes, note_default_judge

CHECKS: Final = ("contains", "equals", "judge")
"""What `--check` takes: the answer contains the expected one, equals it, or a judge compares."""

_JUDGE: Final = {"name": "judge", "provider": "openai", "model": "gpt-4.1"}
CRITERIA: Final = "The answer agrees in substance with the expected output."


def expected_check(expected: Any, check: str, *, in_suite: bool) -> dict[str, Any]:
    """Return the assertion that compares an answer with `expected`.

    What is no text is compared as a value, which only suites can, whichever `check` is asked for.
    """
    if check == "judge":
        if in_suite:
            return {"type": "llm_judge", "criteria": CRITERIA}
        return {"type": "llm-grader", "prompt": CRITERIA}
    if not isinstance(expected, str):
        return {"type": "output.equals", "value": expected}
    kind = "equals" if check == "equals" or not expected else "icontains"
    return {"type": kind, "value": expected}


def default_judge(notes: Notes) -> list[Mapping[str, Any]]:
    """Return the judge of files that name none, and note which one it is."""
    note_default_judge(notes, _JUDGE, "evalcore's default")
    return [_JUDGE]


def as_criteria(text: str) -> str:
    """Return a text as the criteria of a judge, where it names no file and has no variables."""
    text = text.replace("{{", "{ {")
    is_file = text.startswith(("file://", "./", "../")) or text.endswith((".md", ".txt", ".prompt"))
    return f"Criteria: {text}\n" if is_file else text


def is_structured(values: Sequence[Any]) -> bool:
    """Whether a value is no text, which test files cannot compare."""
    return any(value is not None and not isinstance(value, str) for value in values)


def as_input(value: Any) -> Any:
    """Return an input as a suite has it: text, a mapping, messages; other values as their JSON."""
    messages = chat_messages(value)
    if messages is not None:
        return messages
    if isinstance(value, str | Mapping):
        return value
    if value is None:
        return ""
    import orjson

    return orjson.dumps(value).decode()


_ROLES: Final = {"human": "user", "ai": "assistant", "AIMessage": "assistant"} | {
    "HumanMessage": "user",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "function": "tool",
    "developer": "system",
}


def chat_messages(value: Any) -> list[dict[str, Any]] | None:
    """Return a list of messages with the roles of suites, None if the value is no such list.

    OpenAI's `{role, content}`, LangChain's `{type, content}` and `{type, data: {content}}`, and its
    serialised `{id: [..., HumanMessage], kwargs: {content}}`.
    """
    if not isinstance(value, list) or not value:
        return None
    messages = [_message(member) for member in value]
    return [each for each in messages if each is not None] if all(messages) else None


def _message(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        return None
    kind, fields = value.get("role") or value.get("type"), value
    if isinstance(value.get("data"), Mapping):
        fields = value["data"]
    elif isinstance(value.get("kwargs"), Mapping) and isinstance(value.get("id"), list):
        kind, fields = value["id"][-1], value["kwargs"]
    role = _ROLES.get(str(kind), kind)
    content = fields.get("content")
    if role not in ("system", "user", "assistant", "tool"):
        return None
    text = content if isinstance(content, str) else text_of_parts(content)
    return None if text is None else {"role": role, "content": text}


def text_of_parts(content: Any) -> str | None:
    """Return the text of a message's content that is a list of parts; None if a part is no text."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return None
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    parts = [text for text in texts if isinstance(text, str)]
    return "".join(parts) if len(parts) == len(texts) else None
