"""Scorers of Inspect AI as assertions; those of a suite call the module beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evalcore.conversion.converted import MODULE, Notes
from evalcore.conversion.expected_checks import as_criteria, default_judge

Assertion = dict[str, Any]

# What the module has a function for, with the options that the function reads.
_FUNCTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "match": ("location", "ignore_case", "numeric"),
    "exact": (),
    "pattern": ("pattern", "ignore_case", "match_all"),
    "answer": ("pattern",),
    "choice": (),
    "f1": ("stop_words",),
}
_JUDGED: Final = ("model_graded_qa", "model_graded_fact")
_OTHER_JUDGE: Final = (
    "model_graded_qa and model_graded_fact: the judge answers evalcore's prompt with a score, "
    "which passes from 0.8 on"
)
_ONLY_SCORES: Final = "f1 measures and decides nothing: here it passes at any score"
_NUMBERS: Final = "match(numeric=True): decimal numbers are compared; ½, ² and 十 are no numbers"


class Scorers:
    """The scorers of a task; `judges` are the targets that they ask.

    `grader` is the model of the role `grader`, which scorers ask that name none themselves.
    """

    def __init__(self, scorers: Sequence[Any], notes: Notes, grader: Any = None) -> None:
        self._grader = _model_name(grader)
        self._scorers = [
            (str(each["name"]).rpartition("/")[2], _mapping(each.get("options")))
            for each in scorers
            if isinstance(each, Mapping) and each.get("name")
        ]
        self.needs_suite = any(name in _FUNCTIONS for name, _ in self._scorers)
        self._notes = notes
        self._note(notes)

    def _note(self, notes: Notes) -> None:
        for name, options in self._scorers:
            if name in _JUDGED:
                notes.add(_OTHER_JUDGE)
                if options.get("template") or options.get("instructions"):
                    notes.add(f"{name}: its template and instructions are not taken over")
            elif name == "f1":
                notes.add(_ONLY_SCORES)
            elif name == "match" and options.get("numeric"):
                notes.add(_NUMBERS)
            elif name not in _FUNCTIONS and name != "includes":
                notes.add(f"the scorer {name}: a program of your own, or without a counterpart")

    @property
    def judges(self) -> list[Mapping[str, Any]]:
        """The judge, if a scorer asks a model: the one that it names, if it can be a target."""
        for name, options in self._scorers:
            if name in _JUDGED:
                name_of_model = _model_name(options.get("model")) or self._grader
                provider, _, model = name_of_model.partition("/")
                if provider in ("openai", "anthropic") and model:
                    return [{"name": "judge", "provider": provider, "model": model}]
                if name_of_model:
                    self._notes.add(f"the model that grades, {name_of_model}, is left out")
                return default_judge(self._notes)
        return []

    def assertions(self, target: Sequence[str]) -> list[Assertion]:
        """Return the assertions of a sample, any of whose targets is right."""
        assertions = (self._assertion(name, options, target) for name, options in self._scorers)
        return [assertion for assertion in assertions if assertion is not None]

    def _assertion(
        self, name: str, options: Mapping[str, Any], target: Sequence[str]
    ) -> Assertion | None:
        if name == "includes":
            return _includes(options, target)
        if name in _JUDGED:
            criteria = "The answer satisfies: " + " or: ".join(target)
            criteria = as_criteria(criteria) if target else "The answer is right."
            if self.needs_suite:
                return {"type": "llm_judge", "name": name, "criteria": criteria}
            return {"type": "llm-grader", "name": name, "prompt": criteria}
        if name not in _FUNCTIONS:
            return None
        read_options = {
            key: options[key] for key in _FUNCTIONS[name] if options.get(key) is not None
        }
        config = {"config": {"targets": list(target), **read_options}}
        threshold = {"threshold": 0} if name == "f1" else {}
        return {
            "type": "python",
            "callable": f"{MODULE}:{name}",
            "name": name,
            **config,
        } | threshold


def _includes(options: Mapping[str, Any], target: Sequence[str]) -> Assertion | None:
    prefix = "i" if options.get("ignore_case", True) else ""
    if not target:
        return None
    if len(target) == 1:
        return {"type": f"{prefix}contains", "name": "includes", "value": target[0]}
    return {"type": f"{prefix}contains-any", "name": "includes", "value": list(target)}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _model_name(model: Any) -> str:
    return str(model.get("model") or "") if isinstance(model, Mapping) else str(model or "")
