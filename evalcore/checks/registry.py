"""The table of checks: under which name which class stands, and how files write it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from enum import Flag, auto
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.wording import suggest

if TYPE_CHECKING:
    from evalcore.checks.base import Check


class Dialect(Flag):
    """The kinds of files that write assertions."""

    WORKFLOW = auto()
    TEST = auto()
    SUITE = auto()


_W, _T, _S = Dialect.WORKFLOW, Dialect.TEST, Dialect.SUITE


class Word(NamedTuple):
    """How files write a check: what stands after `type:`, and which keys beside it.

    `fixed` are fields that the word says. `keys` maps a key of the file to the field that it means;
    None stands for every field under its own name, and two keys of one field are two names of it.
    `config` are the keys that stand in `config:`. `keys_type` names a TypedDict of the check's
    module with the keys that are no fields, or have another type in files. `reads` names a
    method of the class that makes the name and the fields of a check of what is written.
    """

    dialects: Dialect
    word: str
    fixed: Mapping[str, Any] = {}
    keys: Mapping[str, str] | None = None
    config: tuple[str, ...] = ()
    keys_type: str | None = None
    reads: str | None = None


class CheckRow:
    """Where a check stands, and how files write it; its module is imported on first use.

    `is_async`: it has to be awaited. `is_heavy`: it takes a while although it waits for nothing.
    """

    def __init__(
        self,
        module: str,
        name: str,
        *words: Word,
        is_async: bool = False,
        is_heavy: bool = False,
    ) -> None:
        self.module, self.name, self.words = module, name, words
        self.is_async, self.is_heavy = is_async, is_heavy


# A `config` whose keys the reading function knows.
ANY: Final = ("*",)
_FOLD: Final = {"fold": True}
_NO_FOLD: Final = {"fold": False}
_AS_IT_IS: Final = {"trim": None}
_TRIMMED: Final = {"trim": "ecmascript"}
_PYTHON: Final = {"dialect": "python"}
_ECMASCRIPT: Final = {"dialect": "ecmascript"}
_VALUES: Final = {"value": "values"}
_PATTERN: Final = {"value": "pattern"}
_PATH_AND_VALUE: Final = {"path": "path", "value": "value"}
_VALUE_AS_MAXIMUM: Final = {"value": "threshold"}
_THRESHOLD: Final = {"threshold": "threshold"}
_GRADER_FIELDS: Final = (
    "command", "cwd", "config", "timeout_ms", "env", "memory_mb", "threshold",
)  # fmt: skip
_JUDGED: Final = {"votes": "votes", "aggregation": "aggregation", **_THRESHOLD}

CHECKS: Final[Mapping[str, CheckRow]] = {
    "contains": CheckRow(
        "text", "Contains", Word(_W | _T, "contains", _NO_FOLD), Word(_W | _T, "icontains", _FOLD)
    ),
    "contains-any": CheckRow(
        "text",
        "ContainsAny",
        Word(_W | _T, "contains-any", _NO_FOLD, _VALUES),
        Word(_W | _T, "icontains-any", _FOLD, _VALUES),
    ),
    "contains-all": CheckRow(
        "text",
        "ContainsAll",
        Word(_W | _T, "contains-all", _NO_FOLD, _VALUES),
        Word(_W | _T, "icontains-all", _FOLD, _VALUES),
    ),
    "starts-with": CheckRow(
        "text", "StartsWith", Word(_W, "starts-with", _AS_IT_IS), Word(_T, "starts-with", _TRIMMED)
    ),
    "ends-with": CheckRow(
        "text", "EndsWith", Word(_W, "ends-with", _AS_IT_IS), Word(_T, "ends-with", _TRIMMED)
    ),
    "equals": CheckRow(
        "text",
        "Equals",
        Word(_W, "equals", {}, {}, ("mode",), keys_type="EqualsKeys", reads="read"),
        Word(_T, "equals", _TRIMMED),
    ),
    "word-count": CheckRow(
        "text",
        "WordCount",
        Word(_W, "word-count", keys={}, keys_type="WordCountKeys", reads="read"),
    ),
    "regex": CheckRow(
        "text",
        "Regex",
        Word(_W, "regex", _PYTHON, _PATTERN, config=("flags", "dialect")),
        Word(_T, "regex", _ECMASCRIPT, {**_PATTERN, "flags": "flags"}),
    ),
    "is-json": CheckRow(
        "json",
        "IsJson",
        Word(_W, "is-json", keys={"value": "schema"}),
        Word(_T, "is-json", keys={}),
    ),
    "contains-json": CheckRow(
        "json", "ContainsJson", Word(_W, "contains-json", keys={"value": "schema"})
    ),
    "equals-json": CheckRow("json", "EqualsJson"),
    "levenshtein": CheckRow("text", "Levenshtein", Word(_W, "levenshtein"), is_heavy=True),
    "bleu": CheckRow("text", "Bleu", Word(_W, "bleu"), is_heavy=True),
    "rouge-n": CheckRow("text", "RougeN", Word(_W, "rouge-n"), is_heavy=True),
    "cost": CheckRow(
        "paths",
        "Cost",
        Word(_W, "cost"),
        Word(_T, "cost", keys={"threshold": "threshold", "budget": "threshold"}),
        Word(_S, "metric.total_cost_usd.max", keys=_VALUE_AS_MAXIMUM),
    ),
    "latency": CheckRow(
        "paths",
        "Latency",
        Word(_W | _T, "latency"),
        Word(_S, "metric.latency_ms.max", keys=_VALUE_AS_MAXIMUM),
    ),
    "tokens": CheckRow("paths", "TotalTokens", Word(_W, "tokens")),
    "input-tokens": CheckRow(
        "paths", "InputTokens", Word(_S, "metric.tokens.input.max", keys=_VALUE_AS_MAXIMUM)
    ),
    "output-tokens": CheckRow(
        "paths", "OutputTokens", Word(_S, "metric.tokens.output.max", keys=_VALUE_AS_MAXIMUM)
    ),
    "token-maxima": CheckRow(
        "paths",
        "TokenMaxima",
        Word(
            _T,
            "token-usage",
            keys={
                "threshold": "max_total",
                "max_total": "max_total",
                "max_input": "max_input",
                "max_output": "max_output",
            },
            reads="read",
        ),
    ),
    "output-contains": CheckRow(
        "paths", "OutputContains", Word(_S, "output.contains", keys=_PATH_AND_VALUE)
    ),
    "output-equals": CheckRow(
        "paths", "OutputEquals", Word(_S, "output.equals", keys=_PATH_AND_VALUE)
    ),
    "output-matches": CheckRow(
        "paths",
        "OutputMatches",
        Word(
            _S,
            "output.matches",
            _PYTHON,
            {"path": "path", "value": "pattern", "pattern": "pattern", "flags": "flags"},
        ),
    ),
    "at-path": CheckRow("paths", "AtPath"),
    "at-path-later": CheckRow("paths", "AtPath", is_async=True),
    "no-errors": CheckRow("paths", "NoErrors", Word(_S, "behavior.no_errors")),
    "node-executed": CheckRow("paths", "NodeExecuted", Word(_S, "behavior.node_executed")),
    "node-invocations": CheckRow(
        "paths",
        "NodeInvocations",
        Word(_S, "behavior.node_invocations.max", keys={"node_id": "node_id", "value": "max"}),
    ),
    "llm-grader": CheckRow(
        "judged",
        "LlmGrader",
        Word(_T, "llm-grader", keys=_JUDGED, keys_type="LlmGraderKeys", reads="read"),
        Word(_W, "llm_judge", keys={}, config=ANY, reads="read_judge"),
        Word(_S, "llm_judge", keys=_THRESHOLD, keys_type="SuiteJudgeKeys", reads="read_judge"),
        is_async=True,
    ),
    "rubrics": CheckRow(
        "judged",
        "Rubrics",
        Word(_T, "rubrics", keys=_JUDGED, keys_type="RubricsKeys", reads="read"),
        is_async=True,
    ),
    "code-grader": CheckRow(
        "program",
        "CodeGrader",
        Word(
            _T,
            "code-grader",
            keys={name: name for name in _GRADER_FIELDS},
            keys_type="CodeGraderKeys",
            reads="read",
        ),
        is_async=True,
    ),
    "composite": CheckRow(
        "composite",
        "Composite",
        Word(_T, "composite", keys=_THRESHOLD, keys_type="CompositeKeys", reads="read"),
        is_async=True,
    ),
    "tool-trajectory": CheckRow(
        "tools",
        "ToolTrajectory",
        Word(_T, "tool-trajectory", keys_type="TrajectoryKeys", reads="read"),
    ),
    "skill-trigger": CheckRow("tools", "SkillTrigger", Word(_T, "skill-trigger")),
    "field-accuracy": CheckRow(
        "json", "FieldAccuracy", Word(_T, "field-accuracy", reads="read"), is_heavy=True
    ),
    "execution-metrics": CheckRow(
        "paths", "ExecutionMetrics", Word(_T, "execution-metrics", reads="read")
    ),
    "similar": CheckRow(
        "judged",
        "Similar",
        Word(_T, "similar", keys={}, keys_type="SimilarKeys", reads="read"),
        Word(_W, "similar", {}, {}, ANY, keys_type="SimilarValue", reads="read_config"),
        is_async=True,
    ),
    "human": CheckRow(
        "human",
        "Human",
        Word(_W | _T, "human", keys={}, keys_type="HumanKeys", reads="read"),
        Word(_S, "human", keys={}, keys_type="SuiteHumanKeys", reads="read"),
    ),
    "script-score": CheckRow("paths", "ScriptScore"),
    "unavailable": CheckRow("paths", "Unavailable"),
    "condition": CheckRow("conditions", "EvalCondition", is_async=True),
    "custom": CheckRow("python", "Custom", is_async=True),
    "python": CheckRow(
        "python",
        "Python",
        Word(_W, "python", keys={"callable": "callable"}, config=ANY, reads="read"),
        Word(_S, "python", keys_type="SuitePythonKeys", reads="read_suite"),
        is_async=True,
    ),
}

# The names of the checks that have to be awaited.
AWAITED: Final = frozenset(name for name, row in CHECKS.items() if row.is_async)
# The names of the checks that take a while although they wait for nothing.
HEAVY: Final = frozenset(name for name, row in CHECKS.items() if row.is_heavy)


@cache
def find_check(name: str) -> type[Check]:
    """Return the class of the check, imported; raise `UsageError` if there is none."""
    row = CHECKS.get(name)
    if row is None:
        raise UsageError(f"unknown check '{name}'.{suggest(name, CHECKS)}")
    module = importlib.import_module(f"evalcore.checks.{row.module}")
    check: type[Check] = getattr(module, row.name)
    return check


def load_check(name: str, stored: Mapping[str, Any]) -> Check:
    """Return the check that an assertion names, with the fields that the plan stores of it."""
    return find_check(name).from_stored(stored)
