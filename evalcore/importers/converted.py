"""What a file of another program becomes, and how that is written as a suite."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from evalcore.formats.documents import raise_problem, yaml_text
from evalcore.model.suite import Format
from evalcore.trust.secrets import escaped
from evalcore.wording import one_line

DEFAULT_TARGET: Final = "default"
_LISTED: Final = 3
_PLACEHOLDER_TARGET: Final = {"name": DEFAULT_TARGET, "provider": "echo"}
PROMPT_KEY: Final = "prompt_key"
"""Names, in the configuration of a Python target, which prompt of the input it answers."""


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


def map_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a value of JSON with every text in it changed, but for the keys of mappings."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_texts(member, change) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(member, change) for member in value]
    return value


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


def check_cases(name: str, cases: Collection[Any], notes: Notes) -> None:
    """Raise `LoadError` if nothing is left of the file of this name."""
    if not cases:
        raise_problem(name, None, f"nothing is left of it: {'; '.join(notes.lines)}")


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


def as_input(value: Any) -> Any:
    """Return an input as a suite has it: text, a mapping, messages; other values as their JSON."""
    messages = chat_messages(value)
    if messages is not None:
        return messages
    if isinstance(value, str | Mapping):
        return value
    if value is None:
        return ""
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


def suite_text(
    suite: Converted, *, origin: str, module: str, target: str | None, notes: Sequence[str]
) -> str:
    """Return the text of the suite file, with a comment for each line of `notes`.

    `origin` says where it comes from, `module` names the Python module beside it, and `target` is
    what answers in place of the file's own targets: a target's name or `module:function`.
    """
    lines = [f"Imported from {origin}."]
    if notes:
        lines += ["What differs from it, or was not taken over:", *(f"- {note}" for note in notes)]

    def written(text: str) -> str:
        # A variable that the import writes is one; texts of the file that look like one are not.
        text = str(text) if isinstance(text, VariableText) else escaped(text)
        return text.replace(MODULE, module) if text.startswith(MODULE) else text

    comments = "".join(f"# {line}\n" for line in lines)
    return comments + yaml_text(map_texts(_content(suite, target), written))


def _content(suite: Converted, target: str | None) -> dict[str, Any]:
    targets: list[Mapping[str, Any]] = list(suite.judges)
    names = [target]
    if target is None:
        own = list(suite.targets) or [_PLACEHOLDER_TARGET]
        targets, names = [*own, *targets], [each["name"] for each in own]
    elif ":" in target:
        called = {"name": DEFAULT_TARGET, "provider": "python", "callable": target}
        targets, names = [called, *targets], [DEFAULT_TARGET]
    head = {"name": suite.name} | _present({"description": suite.description})
    written_targets = _present({"targets": targets})
    section = _present({"evalcore": dict(suite.section)})
    if suite.form is Format.TEST_FILE:
        execution = {"target": names[0]} if len(names) == 1 else {"targets": names}
        head |= {**written_targets, "execution": execution, **section}
        return head | {"tests": [_case(case, in_suite=False) for case in suite.cases]}
    head |= {"flow": names[0], **written_targets, "variants": _variants(suite, targets, names)}
    return head | section | {"cases": [_case(case, in_suite=True) for case in suite.cases]}


def _variants(
    suite: Converted, targets: Sequence[Mapping[str, Any]], names: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return a variant for each target, or for each prompt of each target."""
    if not suite.prompts:
        return [{"id": name, "target": name} for name in names]
    python = {each["name"] for each in targets if each["provider"] == "python"}
    variants: dict[str, dict[str, Any]] = {}
    for name, (key, label) in itertools.product(names, suite.prompts.items()):
        identity = unique_id(label if len(names) == 1 else f"{name} ({label})", variants)
        is_python = name in python
        config = {PROMPT_KEY: key} if is_python else {"prompt_template": f"{{input.{key}}}"}
        variants[identity] = {"id": identity, "target": name, "config": config}
    return list(variants.values())


def _case(case: ConvertedCase, *, in_suite: bool) -> dict[str, Any]:
    """Return a case as it is written; an expected `[]`, `{}` or "" is a value."""
    expected = {} if case.expected_output is None else {"expected_output": case.expected_output}
    # Each has to pass, as in the program that the file is of; a test file's score is a mean.
    required = {"required": True} if not in_suite and len(case.assertions) > 1 else {}
    answer = {"output": case.output} | _present({"metrics": dict(case.metrics)})
    return {"id": case.id, "input": case.input, **expected} | _present(
        {
            "fixtures": None if case.output is None else answer,
            "assertions": [{**each, **required} for each in case.assertions],
            "metadata": dict(case.metadata),
            "tags": list(case.tags),
        }
    )


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without those that are None or an empty collection."""
    return {key: value for key, value in fields.items() if value not in (None, [], {})}
