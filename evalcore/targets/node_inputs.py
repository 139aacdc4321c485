"""References to earlier outputs in the inputs of nodes: `{plan}`, `{plan.steps[0]}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from evalcore.targets.flow_answer import AnswerError
from evalcore.workflow.values import MISSING, at_path, text_of

_PATH: Final = r"(?:\.[\w-]+|\[\d+\])*"


class References:
    """Finds and replaces references to these nodes; any other braces stay as they are."""

    def __init__(self, ids: Sequence[str]) -> None:
        longest = sorted(ids, key=len, reverse=True)
        name = "|".join(map(re.escape, longest))
        reference = rf"(?:{name}){_PATH}"
        self._ids = longest
        self._pattern = re.compile(rf"\{{\{{({reference})\}}\}}|\{{({reference})\}}")

    def named_in(self, value: Any) -> Iterator[str]:
        """Yield the nodes that an input refers to."""
        if isinstance(value, str):
            for match in self._pattern.finditer(value):
                if match[2] is not None:
                    yield self._split(match[2])[0]
        elif isinstance(value, Mapping):
            for member in value.values():
                yield from self.named_in(member)
        elif isinstance(value, list | tuple):
            for member in value:
                yield from self.named_in(member)

    def filled(self, value: Any, outputs: Mapping[str, Any]) -> Any:
        """Return an input with its references replaced, within lists and mappings too.

        A text that is one reference becomes the value itself; within a text other values than text
        are JSON. A node that was skipped stands for null, in a text for nothing. `{{plan}}` is the
        text `{plan}`. Raise `AnswerError` for a path that leads nowhere.
        """
        if isinstance(value, str):
            whole = self._pattern.fullmatch(value)
            if whole is not None and whole[2] is not None:
                return self._value(whole[2], outputs)
            return self._pattern.sub(lambda match: self._text(match, outputs), value)
        if isinstance(value, Mapping):
            return {key: self.filled(member, outputs) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.filled(member, outputs) for member in value]
        return value

    def _text(self, match: re.Match[str], outputs: Mapping[str, Any]) -> str:
        if match[2] is None:
            return f"{{{match[1]}}}"
        value = self._value(match[2], outputs)
        return "" if value is None else text_of(value)

    def _value(self, reference: str, outputs: Mapping[str, Any]) -> Any:
        node, path = self._split(reference)
        if node not in outputs:
            return None
        value = outputs[node]
        if not path:
            return value
        member = at_path(value, path)
        if member is MISSING:
            has = f"; it has {', '.join(map(str, value))}" if isinstance(value, Mapping) else ""
            raise AnswerError(f"{{{reference}}}: the output of '{node}' has no '{path}'{has}")
        return member

    def _split(self, reference: str) -> tuple[str, str]:
        """Return the node and the path; the longest id that fits."""
        for name in self._ids:
            rest = reference.removeprefix(name)
            if rest != reference and (not rest or rest[0] in ".["):
                return name, rest.removeprefix(".")
        return reference, ""
