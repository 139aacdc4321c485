"""What a file of another program becomes: cases, targets, checks, and what has no counterpart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from evalcore.model.suite import Format
from evalcore.wording import one_line

DEFAULT_TARGET: Final = "default"
_LISTED: Final = 3


@dataclass(frozen=True, slots=True)
class ConvertedCase:
    """A case; `assertions` are written as the suite's format writes them.

    `output` is a recorded answer, with its measures in `metrics`; None: the target is asked.
    """

    id: str
    input: Any
    assertions: Sequence[Mapping[str, Any]]
    expected_output: Any = None
    output: Any = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Converted:
    """A suite in the making.

    `targets` answer, each as a variant; without any, the file says nothing about what answers.
    `prompts` are labels by the keys of texts in the cases' inputs: each makes a variant of its own.
    `judges` are targets that only grade. `module` is the text of the Python module that callables
    of the form `MODULE:function` name, with `MODULE` as a placeholder. It imports `imported_files`,
    paths from the folder of the file that was read.
    """

    form: Format
    name: str
    cases: Sequence[ConvertedCase]
    description: str | None = None
    targets: Sequence[Mapping[str, Any]] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    judges: Sequence[Mapping[str, Any]] = ()
    section: Mapping[str, Any] = field(default_factory=dict)
    module: str | None = None
    imported_files: Sequence[str] = ()


MODULE: Final = "<module>"
"""Stands in callables for the name of the module that is written beside the suite."""


class VariableText(str):
    """A text with a variable that the suite reads when it is loaded."""

    __slots__ = ()


class Notes:
    """What has no counterpart, each reason and each position of it once."""

    def __init__(self) -> None:
        self._positions: dict[str, dict[str, None]] = {}

    def add(self, reason: str, position: str = "") -> None:
        """Note a reason; `position` is a path into the file, such as `tests[2].assert[0]`."""
        positions = self._positions.setdefault(one_line(reason), {})
        if position:
            positions[one_line(position)] = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The reasons in the order in which they came up, one a line."""
        return tuple(
            _line(reason, list(positions)) for reason, positions in self._positions.items()
        )


def note_default_judge(notes: Notes, judge: Mapping[str, Any], whose: str, at: str = "") -> None:
    """Note which model judges where the file names none, and what would name another."""
    notes.add(
        f"no model that grades is named: the judge is {judge['model']} of {judge['provider']}, "
        f"{whose} (target '{judge['name']}'; write another model there)",
        at,
    )


def _line(reason: str, positions: Sequence[str]) -> str:
    if not positions:
        return reason
    more = len(positions) - _LISTED
    listed = ", ".join(positions[:_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"{listed}: {reason}"


def unique_id(wish: str, used_ids: Collection[str]) -> str:
    """Return an id that is not one of `used_ids`: the wish, or the wish with a number."""
    text = one_line(wish, 80) or "case"
    number, candidate = 2, text
    while candidate in used_ids:
        candidate, number = f"{text}-{number}", number + 1
    return candidate


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
