"""The table of programs whose files are imported, and how a file's program is recognised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.importers.converted import Converted, Notes
from evalcore.importers.files import ForeignFile


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the caller says that the file does not: how answers are compared, who judges.

    `check` is a name of `evalcore.importers.converted.CHECKS`, None where the file decides.
    """

    name: str
    check: str | None = None


class SourceRow(NamedTuple):
    """A program: the module of `importers` that converts its files, and what is its own."""

    module: str
    about: str
    recognises: Callable[[Any], bool]


_LISTED: Final = 12


def _first(value: Any, *lists: str) -> Mapping[str, Any]:
    """Return the first row of a list, which may stand in a document under a key of `lists`."""
    for key in lists:
        value = value.get(key, value) if isinstance(value, Mapping) else value
    first = value[0] if isinstance(value, list) and value else None
    return first if isinstance(first, Mapping) else {}


def _has(value: Any, *keys: str) -> bool:
    return isinstance(value, Mapping) and all(key in value for key in keys)


# What rows of DeepEval have beside `input`, and no row of another program does.
_DEEPEVAL: Final = frozenset(
    {"actual_output", "actualOutput", "custom_column_key_values", "expected_tools", "expectedTools"}
    | {"retrieval_context", "retrievalContext", "expected_outcome", "tools_called", "toolsCalled"}
)


def is_deepeval(value: Any) -> bool:
    """Whether a file is a test run, or its first row one of DeepEval's datasets."""
    first = _first(value)
    has_question = "input" in first or "scenario" in first
    is_run = _has(value, "testCases") or _has(value, "testRunData")
    return is_run or (has_question and not _DEEPEVAL.isdisjoint(first))


def _is_promptfoo(value: Any) -> bool:
    keys = ("prompts", "providers", "scenarios")
    return any(_has(value, key) for key in keys) or _has(value, "tests", "targets")


def _is_inspect(value: Any) -> bool:
    is_log = _has(value, "eval") and not {"samples", "results", "plan"}.isdisjoint(value)
    first = _first(value)
    return is_log or ("input" in first and not {"target", "choices"}.isdisjoint(first))


# A file is of the first program that recognises it.
SOURCES: Final[Mapping[str, SourceRow]] = {
    "deepeval": SourceRow(
        "rows", "goldens or test cases (.json, .jsonl, .csv), or a test run (.json)", is_deepeval
    ),
    "promptfoo": SourceRow("promptfoo", "a configuration: promptfooconfig.yaml", _is_promptfoo),
    "inspect": SourceRow(
        "inspect_ai",
        "a log (.eval, .json), or a dataset of samples (.json, .jsonl, .csv)",
        _is_inspect,
    ),
    "pydantic-evals": SourceRow(
        "pydantic_evals",
        "a dataset (.yaml, .json)",
        lambda value: "inputs" in _first(value, "cases") and _has(value, "cases"),
    ),
    "langsmith": SourceRow(
        "rows",
        "examples or runs of an experiment (.jsonl, .json, .csv)",
        lambda value: "inputs" in _first(value, "examples"),
    ),
    "braintrust": SourceRow(
        "rows",
        "rows of a dataset or of an experiment (.jsonl, .json, .csv)",
        lambda value: "input" in _first(value, "events", "data", "examples"),
    ),
}


def _is_own(value: Any) -> bool:
    """Whether tests are those of test files, which need no import (AgentV's are the same)."""
    test = _first(value, "tests")
    return "input" in test and bool(test.keys() & {"criteria", "assertions", "expected_output"})


def recognise_source(file: ForeignFile) -> str:
    """Return the name of the program that a file is of; raise `UsageError` if it is of none."""
    if _is_own(file.value) and not is_deepeval(file.value):
        raise UsageError(f"{file.name}: is a test file, which `evalcore run` reads as it is")
    for name, row in SOURCES.items():
        if row.recognises(file.value):
            return name
    if file.columns:
        listed = ", ".join(file.columns[:_LISTED])
        raise UsageError(
            f"{file.name}: rows of no program whose files are imported; they have {listed}. Say "
            "what is asked and what is expected: --column NAME=input --column NAME=target"
        )
    listed = "; ".join(f"{name}: {row.about}" for name, row in SOURCES.items())
    raise UsageError(f"{file.name}: of no program whose files are imported ({listed}); --from NAME")


def convert(file: ForeignFile, source: str, options: ImportOptions, notes: Notes) -> Converted:
    """Return a file as a suite; what has no counterpart is added to `notes`.

    Raises `LoadError` where the file is not what the program writes, or nothing is left of it.
    """
    module = import_module(f"evalcore.importers.{SOURCES[source].module}")
    suite: Converted = module.convert(file, source, options, notes)
    return suite
