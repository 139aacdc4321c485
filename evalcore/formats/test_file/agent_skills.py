"""Agent Skills' `evals.json`: a skill's evals, as a test file (docs/reference/test-files.md)."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple, Required

from pydantic import Field, with_config
from typing_extensions import TypedDict

from evalcore.declared.types import Text
from evalcore.formats.documents import Document
from evalcore.formats.section import STRICT, EvalcoreSection
from evalcore.formats.sources import EVALS
from evalcore.formats.test_file.cases import NO_ANSWER
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems

# What a test file calls a key of an eval; messages name the key that the file has.
_OWN_WORDS: Final = {"input": "prompt", "input_files": "files"}
_CHECKED: Final = ("assertions", "expectations", "expected_output")
_NOTHING: Final = "needs 'assertions' or an 'expected_output', or nothing is checked"
_NO_TARGET: Final = (
    "has nothing that answers it: choose a target by --target NAME, or call one 'default' in a "
    "targets.yaml"
)
_NO_SKILL: Final = "says whether a skill is used, and the file names none; add 'skill_name'"


@with_config(STRICT)
class SkillEval(TypedDict, total=False):
    """A prompt, what a good answer is, and statements about it that a judge checks."""

    id: Required[Annotated[int | str, Field(union_mode="left_to_right")]]
    name: str
    prompt: Required[Text]
    expected_output: str
    files: list[Text]
    assertions: list[Text]
    expectations: list[Text]
    should_trigger: bool


@with_config(STRICT)
class SkillEvals(TypedDict, total=False):
    """The evals of one skill."""

    skill_name: Text
    evals: Required[Annotated[list[SkillEval], Field(min_length=1)]]
    evalcore: EvalcoreSection


class SkillTests(NamedTuple):
    """The suite level and the tests of a file, and the collector of its mistakes."""

    suite: dict[str, Any]
    tests: list[dict[str, Any]]
    problems: Problems


def skill_tests(document: Document) -> SkillTests:
    """Return what the test file of these evals holds; raise `LoadError` if a shape is wrong."""
    problems = _SkillProblems(document.file, document.locate)
    raw = document.value
    if problems.check_shape(raw, SkillEvals):
        for index, entry in enumerate(raw[EVALS]):
            _check(entry, raw.get("skill_name"), (EVALS, index), problems)
    problems.raise_if_any()
    suite = {key: value for key, value in raw.items() if key not in {EVALS, "skill_name"}}
    skill = raw.get("skill_name")
    if skill is not None:
        suite |= {"name": skill, "metadata": {"skill_name": skill}}
    return SkillTests(suite, [_test(entry, skill) for entry in raw[EVALS]], problems)


def _check(entry: SkillEval, skill: str | None, loc: Loc, problems: Problems) -> None:
    label = f"eval '{entry['id']}'"
    if "assertions" in entry and "expectations" in entry:
        message = "is another name of 'assertions'; keep one of them"
        problems.add((*loc, "expectations"), message, label=label)
    if "should_trigger" not in entry:
        if not any(entry.get(key) for key in _CHECKED):
            problems.add(loc, _NOTHING, label=label)
    elif skill is None:
        problems.add((*loc, "should_trigger"), _NO_SKILL, label=label)


def _test(entry: SkillEval, skill: str | None) -> dict[str, Any]:
    """Return the test of an eval: its statements are the criteria of one rubric."""
    test: dict[str, Any] = {"id": str(entry["id"]), "input": entry["prompt"]}
    assertions: list[Any] = list(entry.get("assertions", entry.get("expectations", ())))
    if "should_trigger" in entry:
        used = {"skill": skill, "should_trigger": entry["should_trigger"]}
        assertions.insert(0, {"type": "skill-trigger", **used})
    if "name" in entry:
        test["description"] = entry["name"]
    if entry.get("expected_output"):
        test["expected_output"] = entry["expected_output"]
    if assertions:
        test["assertions"] = assertions
    elif entry.get("expected_output"):
        test["criteria"] = entry["expected_output"]
    if entry.get("files"):
        test["input_files"] = entry["files"]
    return test


class _SkillProblems(Problems):
    """Names mistakes in the tests by the keys that their evals have."""

    def add(self, loc: Loc, message: str, *, label: str = "") -> None:
        """Note a mistake at a path of the test file."""
        message = _NO_TARGET if message == NO_ANSWER else message
        own = (_OWN_WORDS.get(part, part) if isinstance(part, str) else part for part in loc)
        super().add(tuple(own), message, label=label)
