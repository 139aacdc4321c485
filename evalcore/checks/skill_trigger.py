"""The check that an agent used a skill, or left it alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from evalcore.checks.base import Check
from evalcore.checks.graded import aspect, by_aspects
from evalcore.checks.material import tool_calls_of
from evalcore.checks.subject import Subject
from evalcore.checks.trajectory import NO_TRACE, arguments_of, calls_of, name_of
from evalcore.judging.prompts import json_text
from evalcore.mistakes.foreign_text import quote, shorten
from evalcore.model.assertion import Verdict, blocked

_READS: Final = frozenset({"read", "readfile", "readtextfile", "viewfile", "view"})
_PATHS: Final = ("file_path", "path", "filePath")


class SkillTrigger(Check):
    """The agent used the `skill`, or did not if `should_trigger` is false.

    It used it if it called the tool `Skill` with that name, read a file below `skills/NAME/`, or a
    tool's output names such a file. Blocked if the target does not say which tools it called.
    """

    expected_field: ClassVar[str] = "skill"

    skill: str
    should_trigger: bool = True

    def check(self, subject: Subject) -> Verdict:
        """Look through the tool calls in their order."""
        if calls_of(subject.evidence) is None:
            return blocked(NO_TRACE)
        calls = tool_calls_of(subject.evidence)
        evidence = next((use for call in calls if (use := self._use_in(call))), None)
        text = evidence or f"{quote(self.skill)} in none of {len(calls)} tool calls"
        return by_aspects([aspect(text, (evidence is not None) is self.should_trigger)], None)

    def _use_in(self, call: Mapping[str, Any]) -> str | None:
        """Return how a tool call uses the skill; None if it does not."""
        name, arguments = name_of(call), arguments_of(call)
        texts: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
        folder = f"skills/{self.skill}/"
        bare = name.lower().replace("_", "").replace(" ", "").replace("-", "")
        if bare == "skill" and self.skill in str(texts.get("skill", "")):
            return f"{name} was called with {quote(str(texts['skill']))}"
        path = next((str(texts[key]) for key in _PATHS if texts.get(key)), "")
        if bare in _READS and folder in path:
            return f"{name} read {quote(shorten(path))}"
        output = call.get("output") or ""
        if folder in (output if isinstance(output, str) else json_text(output)):
            return f"the output of {name} names a file of {quote(self.skill)}"
        return None
