"""The table of checks: under which name which class stands, and how files write it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Flag, auto
from functools import cache, cached_property
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    Required,
    Union,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from evalcore.checks.base import AssertionValueError, defaults
from evalcore.errors import UsageError
from evalcore.shapes import STRICT, Scalar, Share, Text, Weight, adapter
from evalcore.wording import Loc, suggest, value_text

if TYPE_CHECKING:
    from evalcore.checks.base import Check


class Dialect(Flag):
    """The kinds of files that write assertions."""

    WORKFLOW = auto()
    TEST = auto()
    SUITE = auto()


_W, _T, _S = Dialect.WORKFLOW, Dialect.TEST, Dialect.SUITE
_WT: Final = _W | _T


class Word(NamedTuple):
    """How files write a check: what stands after `type:`, and which keys beside it.

    `fixed` are fields that the word says. `keys` maps a key of the file to the field that it means;
    of a tuple each key is its field, None stands for every field under its own name, and two keys
    of one field are two names of it.
    `config` are the keys that stand in `config:`. `keys_type` names a TypedDict of the check's
    module with the keys that are no fields, or have another type in files. `reads` names a
    method of the class that makes the name and the fields of a check of what is written.
    """

    dialects: Dialect
    word: str
    fixed: Mapping[str, Any] = {}
    keys: Mapping[str, str] | tuple[str, ...] | None = None
    config: tuple[str, ...] = ()
    keys_type: str | None = None
    reads: str | None = None


class CheckRow:
    """Where a check stands (`module.Class`), and how files write it; imported on first use.

    `is_async`: it has to be awaited. `is_heavy`: it takes a while although it waits for nothing.
    """

    def __init__(
        self, place: str, *words: Word, is_async: bool = False, is_heavy: bool = False
    ) -> None:
        module, _, self.name = place.partition(".")
        self.module, self.words = f"evalcore.checks.{module}", words
        self.is_async, self.is_heavy = is_async, is_heavy


# A `config` whose keys the reading function knows.
ANY: Final = ("*",)
_PYTHON: Final = {"dialect": "python"}
_ECMASCRIPT: Final = {"dialect": "ecmascript"}
_TRIMMED: Final = {"trim": "ecmascript"}
_VALUES: Final = {"value": "values"}
_PATTERN: Final = {"value": "pattern"}
_VALUE_AS_MAXIMUM: Final = {"value": "threshold"}
_GRADER: Final = ("command", "cwd", "config", "timeout_ms", "env", "memory_mb", "threshold")
_JUDGED: Final = ("votes", "aggregation", "threshold")
_TOKENS: Final = {"threshold": "max_total"} | {
    key: key for key in ("max_total", "max_input", "max_output")
}
_MATCHED: Final = {"path": "path", "value": "pattern", "pattern": "pattern", "flags": "flags"}


def _folded(place: str, word: str, keys: Mapping[str, str] | None = None) -> CheckRow:
    """Return the row of a check that `i…` makes without regard to case."""
    exact, folded = (
        Word(_WT, word, {"fold": False}, keys),
        Word(_WT, f"i{word}", {"fold": True}, keys),
    )
    return CheckRow(place, exact, folded)


def _trimmed(place: str, word: str) -> CheckRow:
    """Return the row of a check that test files make of trimmed texts."""
    return CheckRow(place, Word(_W, word, {"trim": None}), Word(_T, word, _TRIMMED))


CHECKS: Final[Mapping[str, CheckRow]] = {
    "contains": _folded("text.Contains", "contains"),
    "contains-any": _folded("text.ContainsAny", "contains-any", _VALUES),
    "contains-all": _folded("text.ContainsAll", "contains-all", _VALUES),
    "starts-with": _trimmed("text.StartsWith", "starts-with"),
    "ends-with": _trimmed("text.EndsWith", "ends-with"),
    "equals": CheckRow(
        "text.Equals",
        Word(_W, "equals", {}, {}, ("mode",), keys_type="EqualsKeys", reads="read"),
        Word(_T, "equals", _TRIMMED),
    ),
    "word-count": CheckRow(
        "text.WordCount", Word(_W, "word-count", keys={}, keys_type="WordCountKeys", reads="read")
    ),
    "regex": CheckRow(
        "text.Regex",
        Word(_W, "regex", _PYTHON, _PATTERN, config=("flags", "dialect")),
        Word(_T, "regex", _ECMASCRIPT, {**_PATTERN, "flags": "flags"}),
    ),
    "is-json": CheckRow(
        "json.IsJson", Word(_W, "is-json", keys={"value": "schema"}), Word(_T, "is-json", keys={})
    ),
    "contains-json": CheckRow(
        "json.ContainsJson", Word(_W, "contains-json", keys={"value": "schema"})
    ),
    "equals-json": CheckRow("json.EqualsJson"),
    "levenshtein": CheckRow("text.Levenshtein", Word(_W, "levenshtein"), is_heavy=True),
    "bleu": CheckRow("text.Bleu", Word(_W, "bleu"), is_heavy=True),
    "rouge-n": CheckRow("text.RougeN", Word(_W, "rouge-n"), is_heavy=True),
    "cost": CheckRow(
        "paths.Cost",
        Word(_W, "cost"),
        Word(_T, "cost", keys={"threshold": "threshold", "budget": "threshold"}),
        Word(_S, "metric.total_cost_usd.max", keys=_VALUE_AS_MAXIMUM),
    ),
    "latency": CheckRow(
        "paths.Latency",
        Word(_WT, "latency"),
        Word(_S, "metric.latency_ms.max", keys=_VALUE_AS_MAXIMUM),
    ),
    "tokens": CheckRow("paths.TotalTokens", Word(_W, "tokens")),
    "input-tokens": CheckRow(
        "paths.InputTokens", Word(_S, "metric.tokens.input.max", keys=_VALUE_AS_MAXIMUM)
    ),
    "output-tokens": CheckRow(
        "paths.OutputTokens", Word(_S, "metric.tokens.output.max", keys=_VALUE_AS_MAXIMUM)
    ),
    "token-maxima": CheckRow(
        "paths.TokenMaxima",
        Word(_T, "token-usage", {}, _TOKENS, reads="read"),
    ),
    "output-contains": CheckRow(
        "paths.OutputContains", Word(_S, "output.contains", keys=("path", "value"))
    ),
    "output-equals": CheckRow(
        "paths.OutputEquals", Word(_S, "output.equals", keys=("path", "value"))
    ),
    "output-matches": CheckRow(
        "paths.OutputMatches", Word(_S, "output.matches", _PYTHON, _MATCHED)
    ),
    "at-path": CheckRow("paths.AtPath"),
    "at-path-later": CheckRow("paths.AtPath", is_async=True),
    "no-errors": CheckRow("paths.NoErrors", Word(_S, "behavior.no_errors")),
    "node-executed": CheckRow("paths.NodeExecuted", Word(_S, "behavior.node_executed")),
    "node-invocations": CheckRow(
        "paths.NodeInvocations",
        Word(_S, "behavior.node_invocations.max", keys={"node_id": "node_id", "value": "max"}),
    ),
    "llm-grader": CheckRow(
        "judged.LlmGrader",
        Word(_T, "llm-grader", keys=_JUDGED, keys_type="LlmGraderKeys", reads="read"),
        Word(_W, "llm_judge", keys={}, config=ANY, reads="read_judge"),
        Word(_S, "llm_judge", keys=("threshold",), keys_type="SuiteJudgeKeys", reads="read_judge"),
        is_async=True,
    ),
    "rubrics": CheckRow(
        "judged.Rubrics",
        Word(_T, "rubrics", keys=_JUDGED, keys_type="RubricsKeys", reads="read"),
        is_async=True,
    ),
    "code-grader": CheckRow(
        "program.CodeGrader",
        Word(_T, "code-grader", {}, _GRADER, keys_type="CodeGraderKeys", reads="read"),
        is_async=True,
    ),
    "composite": CheckRow(
        "composite.Composite",
        Word(_T, "composite", keys=("threshold",), keys_type="CompositeKeys", reads="read"),
        is_async=True,
    ),
    "tool-trajectory": CheckRow(
        "tools.ToolTrajectory",
        Word(_T, "tool-trajectory", keys_type="TrajectoryKeys", reads="read"),
    ),
    "skill-trigger": CheckRow("tools.SkillTrigger", Word(_T, "skill-trigger")),
    "field-accuracy": CheckRow(
        "json.FieldAccuracy", Word(_T, "field-accuracy", reads="read"), is_heavy=True
    ),
    "execution-metrics": CheckRow(
        "paths.ExecutionMetrics", Word(_T, "execution-metrics", reads="read")
    ),
    "similar": CheckRow(
        "judged.Similar",
        Word(_T, "similar", keys={}, keys_type="SimilarKeys", reads="read"),
        Word(_W, "similar", {}, {}, ANY, keys_type="SimilarValue", reads="read_config"),
        is_async=True,
    ),
    "human": CheckRow(
        "human.Human",
        Word(_WT, "human", keys={}, keys_type="HumanKeys", reads="read"),
        Word(_S, "human", keys={}, keys_type="SuiteHumanKeys", reads="read"),
    ),
    "script-score": CheckRow("paths.ScriptScore"),
    "unavailable": CheckRow("paths.Unavailable"),
    "condition": CheckRow("conditions.EvalCondition", is_async=True),
    "custom": CheckRow("python.Custom", is_async=True),
    "python": CheckRow(
        "python.Python",
        Word(_W, "python", keys=("callable",), config=ANY, reads="read"),
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
    module = importlib.import_module(row.module)
    check: type[Check] = getattr(module, row.name)
    return check


def load_check(name: str, stored: Mapping[str, Any]) -> Check:
    """Return the check that an assertion names, with the fields that the plan stores of it."""
    return find_check(name).from_stored(stored)


@with_config(STRICT)
class TestKeys(TypedDict, total=False):
    """The keys of every assertion of a test file."""

    name: Text
    weight: Weight
    negate: bool
    required: Annotated[bool | Share, Field(union_mode="left_to_right")]
    min_score: Annotated[bool | Share, Field(union_mode="left_to_right")]
    flags: str


@with_config(STRICT)
class WorkflowKeys(TypedDict, total=False):
    """The keys of every assertion of a workflow file; some ignore `threshold` and `value`."""

    weight: Weight | None
    transform: str | None
    metric: str | None
    config: dict[str, Any] | None
    threshold: float | None
    value: Any


@with_config(STRICT)
class SuiteKeys(TypedDict, total=False):
    """The keys of every assertion of a suite file."""

    name: Text
    weight: Weight
    metric: Text


_COMMON: Final[Mapping[Dialect, Any]] = {
    Dialect.WORKFLOW: WorkflowKeys,
    Dialect.TEST: TestKeys,
    Dialect.SUITE: SuiteKeys,
}
# What a dialect takes for a type: test files refuse empty texts, workflow files take numbers.
_TYPES: Final[Mapping[Dialect, Mapping[Any, Any]]] = {
    Dialect.WORKFLOW: {str: Scalar, list[str]: list[Scalar]},
    Dialect.TEST: {
        str: Text,
        list[str]: Annotated[list[str], Field(min_length=1)],
        float: Weight,
    },
    Dialect.SUITE: {float: Weight, str | None: Text},
}

_WITH_OTHERS: Final = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

# What a field is that has to be written under one of its names.
_MEANINGS: Final = {
    "pattern": "the regular expression",
    "threshold": "the most that is allowed",
}


class AssertionType:
    """One word of a dialect: the shape of its assertions, and the check that they mean."""

    def __init__(self, dialect: Dialect, word: Word, check: str, row: CheckRow) -> None:
        self.dialect, self.word, self.check = dialect, word, check
        self._row = row

    @property
    def name(self) -> str:
        """What stands after `type:`."""
        return self.word.word

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """The keys beside `type:` and the fields that they mean."""
        keys = self.word.keys
        if keys is None:
            keys = tuple(each.name for each in fields(self._class))
            keys = tuple(name for name in keys if name not in self.word.fixed)
        return {name: name for name in keys} if isinstance(keys, tuple) else keys

    @cached_property
    def shape(self) -> Any:
        """The TypedDict of such an assertion."""
        common = get_type_hints(_COMMON[self.dialect], include_extras=True)
        shape = TypedDict(  # type: ignore[misc]
            "".join(part.capitalize() for part in self.name.replace(".", "-").split("-")),
            {"type": Required[Literal[self.spellings]], **common, **self.own_keys},
            total=False,
        )
        shape.__doc__ = self._class.__doc__
        takes_others = self._class.others_in is not None
        return with_config(_WITH_OTHERS if takes_others else STRICT)(shape)

    @cached_property
    def validate(self) -> Callable[[Any], dict[str, Any]]:
        """Return a mapping that has the shape; raise pydantic's `ValidationError`."""
        validated: Callable[[Any], dict[str, Any]] = adapter(self.shape).validate_python
        return validated

    @property
    def takes_texts(self) -> bool:
        """Whether `value` is a text or a list of texts."""
        field = self.keys.get("value")
        return field is not None and self._hints[field] in (str, list[str])

    @cached_property
    def base(self) -> Mapping[str, Any]:
        """The stored fields that no key says."""
        check = self._class
        stored = {key: value for key, value in defaults(check).items() if key not in check.omitted}
        return {**stored, **self.word.fixed}

    def read(self, written: Mapping[str, Any], reader: Any) -> tuple[str, dict[str, Any]]:
        """Return the name and the stored fields of the check that a validated mapping means.

        Raises `AssertionValueError` for values that do not fit together.
        """
        self._check_names(written)
        written = self._with_others(written)
        if self.word.reads is not None:
            read: tuple[str, dict[str, Any]] = getattr(self._class, self.word.reads)(
                written, reader
            )
            return read
        stored = dict(self.base)
        for key, name in self.keys.items():
            if key in written and not (written[key] is None and name in stored):
                stored[name] = self._value(name, written[key])
        config = written.get("config")
        if config:
            written_keys = (key for key in self.word.config if config.get(key) is not None)
            stored.update({key: value_text(config[key]) for key in written_keys})
        return self.check, stored

    def _with_others(self, written: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is written with the keys that the type does not know in their field."""
        into = self._class.others_in
        others = written.keys() - self.shape.__annotations__ if into else ()
        if not others:
            return written
        own = {key: value for key, value in written.items() if key not in others}
        moved = {key: value for key, value in written.items() if key in others}
        return {**own, into: {**moved, **(own.get(into) or {})}}

    @property
    def takes_others(self) -> bool:
        """Whether an assertion of this type may have keys that the type does not know."""
        return self._class.others_in is not None

    def required_score(self, written: Mapping[str, Any]) -> float | None:
        """Return the score below which the item fails; None if the type has no such key."""
        required: float | None = self._class.required_score(written)
        return required

    def _check_names(self, written: Mapping[str, Any]) -> None:
        """Refuse two names of one field, and a required field that is written under none."""
        for field, names in self._shared_fields.items():
            keys = [name for name in names if name in written]
            if len(keys) > 1:
                raise AssertionValueError(
                    f"'{keys[1]}' is another name of '{keys[0]}'; keep one", keys[1]
                )
            if not keys and self.word.reads is None and field not in defaults(self._class):
                aliases = ", ".join(f"'{name}'" for name in names[1:])
                message = f"'{names[0]}' (or {aliases}) is required: {_MEANINGS[field]}"
                raise AssertionValueError(message)

    @cached_property
    def _shared_fields(self) -> Mapping[str, list[str]]:
        """The fields that have several names, each with its keys."""
        names: dict[str, list[str]] = {}
        for key, field in self.keys.items():
            names.setdefault(field, []).append(key)
        return {field: keys for field, keys in names.items() if len(keys) > 1}

    def _value(self, name: str, value: Any) -> Any:
        if self.dialect is Dialect.WORKFLOW:
            if self._hints[name] is str:
                return value_text(value)
            if self._hints[name] == list[str]:
                return [value_text(member) for member in value]
        return value

    @cached_property
    def own_keys(self) -> dict[str, Any]:
        """The keys that this type has beside those of every assertion, with their types."""
        optional, types = defaults(self._class), _TYPES[self.dialect]
        own = {}
        for key, name in self.keys.items():
            hint = self._hints[name]
            if optional.get(name) != "":  # what is empty by itself may be written so
                hint = types.get(hint, hint)
            is_required = name not in optional and name not in self._shared_fields
            own[key] = Required[hint] if is_required else hint
        own |= self._other_keys
        if self.dialect is Dialect.WORKFLOW:
            # An optional key of a workflow file may be null.
            return {
                key: hint if get_origin(hint) is Required else Union[hint, None]  # noqa: UP007
                for key, hint in own.items()
            }
        return own

    def without_absent(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is written without optional keys that are null: null is their absence."""
        required = self.shape.__required_keys__
        return {key: each for key, each in written.items() if each is not None or key in required}

    def idle_keys(self, written: Mapping[str, Any]) -> list[tuple[Loc, str]]:
        """Return what is written without effect: the path of each key, and the reason."""
        idle: list[tuple[Loc, str]] = list(self._class.idle_keys(written))
        if "flags" in written and "flags" not in self.keys:
            idle.append((("flags",), "only 'regex' has flags"))
        return idle

    @property
    def _other_keys(self) -> Mapping[str, Any]:
        if self.word.keys_type is None:
            return {}
        module = importlib.import_module(self._row.module)
        return get_type_hints(getattr(module, self.word.keys_type), include_extras=True)

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        return get_type_hints(self._class, include_extras=True)

    @property
    def _class(self) -> Any:
        return find_check(self.check)

    @property
    def spellings(self) -> tuple[str, ...]:
        """What may stand after `type:`; test files may write underscores."""
        names = (self.name, f"not-{self.name}")
        if self.dialect is not Dialect.TEST:
            return names
        return tuple(
            dict.fromkeys(each for name in names for each in (name, name.replace("-", "_")))
        )


@cache
def assertion_types(dialect: Dialect) -> Mapping[str, AssertionType]:
    """Return the types that a dialect knows, by their names; nothing is imported for it."""
    return {
        word.word: AssertionType(dialect, word, check, row)
        for check, row in CHECKS.items()
        for word in row.words
        if dialect in word.dialects
    }


@cache
def column_types() -> tuple[str, ...]:
    """Return the types that a column of a table can be, also negated.

    `value` is all that they need, as text; `is-json`, which needs nothing, has `true` in its cell.
    """
    names = [
        name
        for name, kind in assertion_types(Dialect.TEST).items()
        if name == "is-json" or (kind.word.reads is None and kind.takes_texts)
    ]
    return (*names, *(f"not-{name}" for name in names))


def assertion_words() -> frozenset[str]:
    """Return the words of all kinds of files, also negated."""
    words = {name for dialect in Dialect for name in assertion_types(dialect)}
    return frozenset(words | {f"not-{word}" for word in words})


def assertion_schema(dialect: Dialect, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an assertion of a dialect; its parts are put into `definitions`."""
    shapes = tuple(kind.shape for kind in assertion_types(dialect).values())
    union = Annotated[Union[shapes], Field(discriminator="type")]  # type: ignore[valid-type]  # noqa: UP007
    schema = adapter(union).json_schema()
    definitions |= schema.pop("$defs")
    return schema
