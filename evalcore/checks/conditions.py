"""Conditions of saved evals: one assertion about one output handle of a workflow block."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
)

from evalcore.checks.base import Check, Fault, Subject
from evalcore.checks.json import SCHEMA_PATTERN_S, SchemaProblem, first_mistake, schema_faults
from evalcore.errors import TargetError
from evalcore.jsonvalues import (
    PathSyntaxError,
    Resolved,
    Unresolved,
    parse_path,
    resolve,
    same_json,
)
from evalcore.judging.asking import JudgeQuestion, Judges, JudgeSpec, cosine
from evalcore.judging.panel import ask_until_valid
from evalcore.judging.prompts import SYSTEM, fill
from evalcore.judging.replies import ReplyError, read_object, text_of
from evalcore.model.assertion import PASSED, Outcome, Verdict, failed
from evalcore.model.evidence import Evidence
from evalcore.model.scoring import reaches
from evalcore.patterns import PatternError, compile_pattern
from evalcore.wording import counted, describe, json_text, quote, quote_pattern, shorten

REASONING: Final = "reasoning___"


def without_reasoning(value: Any) -> Any:
    """Return the value without keys that begin with `reasoning___`, at any depth."""
    if isinstance(value, dict):
        return {
            key: without_reasoning(below)
            for key, below in value.items()
            if not key.startswith(REASONING)
        }
    return [without_reasoning(element) for element in value] if isinstance(value, list) else value


def contains_object(value: Any, expected: Any) -> bool:
    """Whether every key of `expected` is in `value` with a value that contains it, recursively.

    Lists and scalars inside contain nothing but what equals them.
    """
    if not isinstance(expected, dict):
        return same_json(value, expected)
    return isinstance(value, dict) and all(
        key in value and contains_object(value[key], below) for key, below in expected.items()
    )


class BlockedCode(StrEnum):
    """Why a condition could not be evaluated."""

    BLOCK_EXECUTION_FAILED = "block_execution_failed"
    HANDLE_MISSING = "handle_missing"
    PATH_UNRESOLVED = "path_unresolved"
    TYPE_ERROR = "type_error"
    INVALID_REGEX = "invalid_regex"
    SCHEMA_INVALID = "schema_invalid"
    JUDGE_UNAVAILABLE = "judge_unavailable"


def blocked(code: BlockedCode, message: str, **details: Any) -> Verdict:
    """Return the verdict of a condition that cannot be evaluated."""
    return Verdict(Outcome.BLOCKED, 0.0, message, details={"code": str(code), **details})


def verdict(holds: bool, message: str) -> Verdict:
    """Return PASSED if the condition holds, else the failure with this message."""
    return PASSED if holds else failed(message)


class Condition(BaseModel):
    """One kind of condition: its fields as they stand in a request, and when it holds."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    shown_field: ClassVar[str] = "expected"

    kind: str

    @property
    def asks_judge(self) -> bool:
        """Whether a judge decides it."""
        return False

    @property
    def asks_embeddings(self) -> bool:
        """Whether it compares embeddings."""
        return False

    @property
    def expected_value(self) -> Any:
        """The JSON value that a result shows as expected."""
        return self.model_dump(mode="json", by_alias=True).get(self.shown_field)

    def mistakes(self) -> Iterable[str]:
        """Return why the condition can never be met; it is refused when it is saved."""
        return ()

    def faults(self) -> Iterable[Fault]:
        """Return why the condition cannot be applied to any value, and what has no effect."""
        return ()

    def check(self, value: Any) -> Verdict:
        """Return the verdict on the addressed JSON value."""
        raise NotImplementedError

    async def evaluate(self, value: Any, judges: Judges) -> Verdict:  # noqa: ARG002 - for kinds that ask
        """Return the verdict on the addressed JSON value; conditions that ask wait here."""
        return self.check(value)


class TextCondition(Condition):
    """A condition on a text; on anything else it is blocked."""

    def check(self, value: Any) -> Verdict:
        """Return the verdict of `check_text`."""
        return self.check_text(value) if isinstance(value, str) else type_error("text", value)

    def check_text(self, text: str) -> Verdict:
        """Return the verdict on a text."""
        raise NotImplementedError


def type_error(expected: str, value: Any) -> Verdict:
    """Return the verdict on a value whose type the condition does not fit."""
    return blocked(BlockedCode.TYPE_ERROR, f"expected {expected}, got {describe(value)}")


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


Operator = Literal["gt", "gte", "lt", "lte", "eq", "neq"]
_SIGNS = {"gt": ">", "gte": "≥", "lt": "<", "lte": "≤", "eq": "=", "neq": "≠"}


def _keep_integer(written: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Return a number as it is written: as a float an integer would lose digits beyond 2^53."""
    number = validate(written)
    return written if isinstance(written, int) else number


Number = Annotated[
    float,
    WrapValidator(_keep_integer),
    PlainSerializer(lambda number: number, return_type=int | float),
    WithJsonSchema({"type": "number"}),
]


class Exists(Condition):
    """There is a value at the path; null is one."""

    kind: Literal["exists"]

    def check(self, value: Any) -> Verdict:  # noqa: ARG002 - that there is one is all
        """Return passed: there is a value."""
        return PASSED


class NotExists(Condition):
    """There is no value at the path: a missing key, an index out of range, a path through null."""

    kind: Literal["not_exists"]

    def check(self, value: Any) -> Verdict:
        """Return failed: there is a value."""
        return failed(f"there is a value: {_brief(value)}")


class _Comparison(Condition):
    negated: ClassVar[bool] = False

    expected: Any

    def holds(self, value: Any) -> bool | Verdict:
        """Whether the value has what is expected, or the verdict that it cannot be compared."""
        raise NotImplementedError

    def message(self, value: str, expected: str) -> str:
        """Return what is wrong with a value, as texts for people."""
        raise NotImplementedError

    def check(self, value: Any) -> Verdict:
        """Return the verdict, of a negated kind the opposite; blocked for the same values."""
        holds = self.holds(value)
        if isinstance(holds, Verdict):
            return holds
        return verdict(
            holds is not self.negated, self.message(_brief(value), _brief(self.expected))
        )


class _Equality(_Comparison):
    def holds(self, value: Any) -> bool:
        """Compare; `reasoning___` keys of both sides do not count."""
        return same_json(without_reasoning(value), without_reasoning(self.expected))

    def message(self, value: str, expected: str) -> str:
        """Return that they are, or are not, the same."""
        return f"the value is {expected}" if self.negated else f"{value} is not {expected}"


class Equals(_Equality):
    """The value is `expected`: deep, typed, in any order of keys."""

    kind: Literal["equals"]


class NotEquals(_Equality):
    """The value is not `expected`."""

    negated: ClassVar[bool] = True

    kind: Literal["not_equals"]


class _Containment(_Comparison):
    def holds(self, value: Any) -> bool | Verdict:
        """Search; blocked for values that are neither, and a text in search of none."""
        if isinstance(value, list):
            return any(same_json(element, self.expected) for element in value)
        if not isinstance(value, str):
            return type_error("text or a list", value)
        expected = self.expected
        return expected in value if isinstance(expected, str) else type_error("text", expected)

    def message(self, value: str, expected: str) -> str:
        """Return that it does, or does not, contain it."""
        return f"{value} {'contains' if self.negated else 'does not contain'} {expected}"


class Contains(_Containment):
    """A text contains the text `expected`, or a list has `expected` as an element."""

    kind: Literal["contains"]


class NotContains(_Containment):
    """A text does not contain the text `expected`, or a list lacks it."""

    negated: ClassVar[bool] = True

    kind: Literal["not_contains"]


class ObjectContains(Condition):
    """The value is an object that has all of `expected`, recursively."""

    kind: Literal["object_contains"]
    expected: dict[str, Any]

    def check(self, value: Any) -> Verdict:
        """Return the verdict; `reasoning___` keys do not count."""
        if not isinstance(value, dict):
            return type_error("an object", value)
        return verdict(
            contains_object(without_reasoning(value), without_reasoning(self.expected)),
            f"{_brief(value)} does not contain {_brief(self.expected)}",
        )


class ArrayContains(Condition):
    """One element of a list contains the object `expected`, or equals another value."""

    kind: Literal["array_contains"]
    expected: Any

    def check(self, value: Any) -> Verdict:
        """Return the verdict; `reasoning___` keys do not count."""
        if not isinstance(value, list):
            return type_error("a list", value)
        expected = without_reasoning(self.expected)
        return verdict(
            any(contains_object(without_reasoning(element), expected) for element in value),
            f"no element of {_brief(value)} contains {_brief(self.expected)}",
        )


class NumberCompare(Condition):
    """A number compares with `expected` as `op` says."""

    kind: Literal["number_compare"]
    op: Operator
    expected: Number

    def check(self, value: Any) -> Verdict:
        """Return the verdict; numeric texts and booleans are no numbers."""
        if not is_number(value):
            return type_error("a number", value)
        return compared(value, self.op, self.expected)


class Between(Condition):
    """A number lies between `lower` and `upper`, both included unless `inclusive` is false."""

    kind: Literal["between"]
    lower: Number
    upper: Number
    inclusive: bool = True

    def mistakes(self) -> Iterator[str]:
        """Yield that no number lies between the bounds."""
        if self.lower > self.upper:
            yield f"lower ({_number_text(self.lower)}) is above upper ({_number_text(self.upper)})"

    @property
    def expected_value(self) -> Any:
        """Both bounds, and whether they count."""
        return {"lower": self.lower, "upper": self.upper, "inclusive": self.inclusive}

    def check(self, value: Any) -> Verdict:
        """Return the verdict; numeric texts and booleans are no numbers."""
        if not is_number(value):
            return type_error("a number", value)
        inside = (
            self.lower <= value <= self.upper if self.inclusive else self.lower < value < self.upper
        )
        bounds = f"{_number_text(self.lower)} and {_number_text(self.upper)}"
        return verdict(inside, f"{value} is not between {bounds}")


class LengthCompare(Condition):
    """The length of a text, a list or an object compares with `expected` as `op` says."""

    kind: Literal["length_compare"]
    op: Operator
    expected: Number

    def check(self, value: Any) -> Verdict:
        """Return the verdict; the length of a text is its number of code points."""
        if not isinstance(value, str | list | dict):
            return type_error("text, a list or an object", value)
        return compared(len(value), self.op, self.expected, "length ")


class JsonSchemaValid(Condition):
    """The value conforms to a JSON Schema; nothing that it refers to is fetched."""

    shown_field: ClassVar[str] = "schema"

    kind: Literal["json_schema_valid"]
    schema_: dict[str, Any] | bool = Field(alias="schema")

    def faults(self) -> Iterator[Fault]:
        """Yield what makes the schema none, and what of it has no effect."""
        for each in schema_faults(self.schema_):
            yield each._replace(path=("schema", *each.path))

    def check(self, value: Any) -> Verdict:
        """Return the verdict; blocked if the schema is not valid or cannot be applied."""
        try:
            mistake = first_mistake(value, self.schema_, SCHEMA_PATTERN_S)
        except SchemaProblem as error:
            return blocked(BlockedCode.SCHEMA_INVALID, str(error))
        return PASSED if mistake is None else failed(mistake)


def compared(value: float, op: Operator, expected: float, noun: str = "") -> Verdict:
    """Return the verdict of a comparison of two numbers."""
    holds = {
        "gt": value > expected,
        "gte": value >= expected,
        "lt": value < expected,
        "lte": value <= expected,
        "eq": value == expected,
        "neq": value != expected,
    }[op]
    return verdict(holds, f"{noun}{value} is not {_SIGNS[op]} {_number_text(expected)}")


def _number_text(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def _brief(value: Any) -> str:
    return shorten(json_text(value), 120)


class StartsWith(TextCondition):
    """The text begins with `expected`; case counts."""

    kind: Literal["starts_with"]
    expected: str

    def check_text(self, text: str) -> Verdict:
        """Return the verdict."""
        return verdict(
            text.startswith(self.expected),
            f"{quote(text)} does not start with {quote(self.expected)}",
        )


class EndsWith(TextCondition):
    """The text ends with `expected`; case counts."""

    kind: Literal["ends_with"]
    expected: str

    def check_text(self, text: str) -> Verdict:
        """Return the verdict."""
        return verdict(
            text.endswith(self.expected), f"{quote(text)} does not end with {quote(self.expected)}"
        )


class MatchesRegex(TextCondition):
    """The whole text matches a regular expression of Python's dialect."""

    shown_field: ClassVar[str] = "pattern"

    kind: Literal["matches_regex"]
    pattern: str

    def faults(self) -> Iterator[Fault]:
        """Yield that the pattern is none."""
        try:
            compile_pattern(self.pattern)
        except PatternError as error:
            yield Fault(("pattern",), str(error))

    def check_text(self, text: str) -> Verdict:
        """Return the verdict; blocked if the pattern is not valid or takes too long."""
        try:
            matches = compile_pattern(self.pattern).fullmatch(text, SCHEMA_PATTERN_S)
        except (PatternError, TimeoutError) as error:
            return blocked(BlockedCode.INVALID_REGEX, str(error))
        return verdict(bool(matches), f"{quote(text)} does not match {quote_pattern(self.pattern)}")


class SimilarityGte(TextCondition):
    """The similarity of the text and `reference` is at least `threshold`.

    `levenshtein` is 1 − distance / length of the longer text, `embeddings` the cosine of both
    embeddings.
    """

    shown_field: ClassVar[str] = "reference"

    kind: Literal["similarity_gte"]
    reference: str
    threshold: Annotated[float, Field(ge=0, le=1)]
    method: Literal["levenshtein", "embeddings"] = "levenshtein"

    @property
    def asks_embeddings(self) -> bool:
        """Whether that is its method."""
        return self.method == "embeddings"

    def check_text(self, text: str) -> Verdict:
        """Return the verdict by edit distance; two empty texts are the same."""
        from rapidfuzz.distance import Levenshtein

        return self._verdict(Levenshtein.normalized_similarity(text, self.reference))

    async def evaluate(self, value: Any, judges: Judges) -> Verdict:
        """Return the verdict; blocked if there is no embedding."""
        if self.method == "levenshtein" or not isinstance(value, str):
            return self.check(value)
        try:
            embedded = await judges.embed(JudgeSpec(), [self.reference, value])
            reference, text = embedded.vectors
            return self._verdict(cosine(reference, text))
        except (TargetError, ValueError) as error:
            return blocked(BlockedCode.JUDGE_UNAVAILABLE, str(error))

    def _verdict(self, similarity: float) -> Verdict:
        return verdict(
            reaches(similarity, self.threshold),
            f"similarity {similarity:.4g} < {self.threshold:g}",
        )


STRICT_MODEL: Final = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


# The integers that every reader of JSON has exactly (RFC 8259, section 6).
PageNumber = Annotated[int, Field(gt=-(2**53), lt=2**53)]


class Split(BaseModel):
    """One part of a document: its name and the numbers of its pages."""

    model_config = STRICT_MODEL

    name: str
    pages: list[PageNumber]


class Splits(BaseModel):
    """A document's parts."""

    model_config = STRICT_MODEL

    splits: list[Split]

    @property
    def pages(self) -> dict[str, set[int]]:
        """The pages of each name; parts of the same name are one."""
        pages: dict[str, set[int]] = {}
        for split in self.splits:
            pages.setdefault(split.name, set()).update(split.pages)
        return pages


class _ActualSplit(Split):
    model_config = STRICT_MODEL | ConfigDict(extra="ignore")


_ACTUAL = TypeAdapter(list[_ActualSplit])


class SplitIouGte(Condition):
    """The mean intersection over union of the pages of each part is at least `threshold`.

    The mean goes over all names of both sides; a name of one side only counts 0.
    """

    kind: Literal["split_iou_gte"]
    expected: Splits
    threshold: Annotated[float, Field(ge=0, le=1)] = 1.0

    def check(self, value: Any) -> Verdict:
        """Return the verdict; the value is `{splits: […]}` or the list itself."""
        listed = value.get("splits") if isinstance(value, dict) else value
        try:
            actual = Splits(splits=list(_ACTUAL.validate_python(listed)))
        except ValidationError:
            return type_error("splits, a list of {name, pages}", value)
        score = mean_iou(actual.pages, self.expected.pages)
        return verdict(reaches(score, self.threshold), f"mean IoU {score:.4g} < {self.threshold:g}")


def mean_iou(actual: Mapping[str, set[int]], expected: Mapping[str, set[int]]) -> float:
    """Return the mean intersection over union over all names; 1.0 if there are none."""
    names = [*expected, *(name for name in actual if name not in expected)]
    if not names:
        return 1.0
    return fsum(_iou(actual.get(name), expected.get(name)) for name in names) / len(names)


def _iou(actual: set[int] | None, expected: set[int] | None) -> float:
    if actual is None or expected is None:
        return 0.0
    union = actual | expected
    return len(actual & expected) / len(union) if union else 1.0


Label = Annotated[str, Field(min_length=1)]
DEFAULT_LABELS: Final = ("yes", "no")
_PROMPT: Final = (
    "Choose the label of the value by the rubric.\n\nRubric: {{rubric}}\n\nLabels: {{labels}}\n\n"
    "Value: {{value}}\n\n"
    'Answer with JSON only, in this form: {"label": one of the labels, "reasoning": one sentence}'
)


class _Judged(Condition):
    shown_field: ClassVar[str] = "expected_label"
    negated: ClassVar[bool] = False

    rubric: Label
    labels: Annotated[list[Label], Field(min_length=1, default_factory=lambda: [*DEFAULT_LABELS])]
    expected_label: Label = "yes"

    @property
    def asks_judge(self) -> bool:
        """True."""
        return True

    def mistakes(self) -> Iterator[str]:
        """Yield why no judge could meet the condition."""
        if _folded(self.expected_label) not in map(_folded, self.labels):
            yield (
                f"expected_label '{self.expected_label}' is not one of the labels: "
                + ", ".join(self.labels)
            )

    async def evaluate(self, value: Any, judges: Judges) -> Verdict:
        """Return the verdict on the label that the judge chooses, without case.

        Blocked without a valid answer.
        """
        for mistake in self.mistakes():
            return blocked(BlockedCode.TYPE_ERROR, mistake)
        question = self._question(value)
        try:
            vote = await ask_until_valid(
                judges, JudgeSpec(), question, lambda text: self._read(text, question)
            )
        except TargetError as error:
            return blocked(BlockedCode.JUDGE_UNAVAILABLE, str(error))
        is_expected = vote.reading == _folded(self.expected_label)
        return verdict(is_expected is not self.negated, f"judged as '{vote.reading}'")

    def _question(self, value: Any) -> JudgeQuestion:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        material = {"rubric": self.rubric, "labels": ", ".join(self.labels), "value": text}
        filled = fill(_PROMPT, material)
        schema = {
            "type": "object",
            "properties": {
                "label": {"type": "string", "enum": self.labels},
                "reasoning": {"type": "string"},
            },
            "required": ["label", "reasoning"],
            "additionalProperties": False,
        }
        return JudgeQuestion(SYSTEM, filled.text, schema, filled.material)

    def _read(self, text: str, question: JudgeQuestion) -> str:
        label = _folded(text_of(read_object(text, question.material), "label"))
        if label not in map(_folded, self.labels):
            raise ReplyError(f"'label' has to be one of {', '.join(self.labels)}")
        return label


class LlmJudgedAs(_Judged):
    """A judge gives the value the label `expected_label`, by the rubric."""

    kind: Literal["llm_judged_as"]


class LlmNotJudgedAs(_Judged):
    """A judge gives the value another label than `expected_label`."""

    negated: ClassVar[bool] = True

    kind: Literal["llm_not_judged_as"]


def _folded(label: str) -> str:
    return label.strip().casefold()


class _NestedCondition(Condition):
    """A condition on the elements of a list; on anything else it is blocked."""

    shown_field: ClassVar[str] = "condition"

    condition: AnyCondition

    @property
    def asks_judge(self) -> bool:
        """Whether the nested condition does."""
        return bool(self.condition.asks_judge)

    @property
    def asks_embeddings(self) -> bool:
        """Whether the nested condition does."""
        return bool(self.condition.asks_embeddings)

    def mistakes(self) -> Iterable[str]:
        """Return those of the nested condition."""
        return self.condition.mistakes()

    def faults(self) -> Iterator[Fault]:
        """Yield those of the nested condition."""
        for fault in self.condition.faults():
            yield fault._replace(path=("condition", *fault.path))

    async def evaluate(self, value: Any, judges: Judges) -> Verdict:
        """Return the verdict on the list, by the verdicts on its elements."""
        if not isinstance(value, list):
            return type_error("a list", value)
        return self.joined([await self.condition.evaluate(each, judges) for each in value])

    def joined(self, verdicts: Sequence[Verdict]) -> Verdict:
        """Return the verdict on the list."""
        raise NotImplementedError


class AllItemsMatch(_NestedCondition):
    """The nested condition holds for every element; an empty list passes."""

    kind: Literal["all_items_match"]

    def joined(self, verdicts: Sequence[Verdict]) -> Verdict:
        """Return failed if it fails for one element, else blocked if it is for one."""
        for outcome in (Outcome.FAILED, Outcome.BLOCKED):
            for index, verdict in enumerate(verdicts):
                if verdict.outcome is outcome:
                    return _at(index, verdict)
        return PASSED


class AnyItemMatches(_NestedCondition):
    """The nested condition holds for one element; an empty list fails."""

    kind: Literal["any_item_matches"]

    def joined(self, verdicts: Sequence[Verdict]) -> Verdict:
        """Return passed if it holds for one element, else blocked if it is for one."""
        if any(verdict.outcome is Outcome.PASSED for verdict in verdicts):
            return PASSED
        for index, verdict in enumerate(verdicts):
            if verdict.outcome is Outcome.BLOCKED:
                return _at(index, verdict)
        return failed(f"none of {counted(len(verdicts), 'element')} matches")


AnyCondition = Annotated[
    Exists
    | NotExists
    | Equals
    | NotEquals
    | Contains
    | NotContains
    | NumberCompare
    | Between
    | StartsWith
    | EndsWith
    | MatchesRegex
    | ObjectContains
    | ArrayContains
    | LengthCompare
    | JsonSchemaValid
    | AllItemsMatch
    | AnyItemMatches
    | SimilarityGte
    | LlmJudgedAs
    | LlmNotJudgedAs
    | SplitIouGte,
    Field(discriminator="kind"),
]

for nested in (_NestedCondition, AllItemsMatch, AnyItemMatches):
    nested.model_rebuild()

CONDITION: TypeAdapter[Any] = TypeAdapter(AnyCondition)


def _at(index: int, verdict: Verdict) -> Verdict:
    return verdict._replace(message=f"element {index}: {verdict.message}")


class AssertionTarget(BaseModel):
    """Which output handle an assertion looks at, and the path inside its payload."""

    model_config = STRICT_MODEL

    output_handle_id: Annotated[str, Field(min_length=1)]
    path: str | None = None

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, path: str | None) -> str | None:
        if path == "":
            return None
        if path is not None:
            try:
                parse_path(path)
            except PathSyntaxError as error:
                raise ValueError(str(error)) from error
        return path


class EvalAssertion(BaseModel):
    """What a saved eval asserts; `label` is a name for people."""

    model_config = STRICT_MODEL

    id: str | None = None
    target: AssertionTarget
    condition: AnyCondition
    label: str | None = None


class JsonHandle(BaseModel):
    """A handle's value: any JSON."""

    model_config = STRICT_MODEL

    type: Literal["json"]
    data: Any


class FileReference(BaseModel):
    """A file that the service holds."""

    model_config = STRICT_MODEL

    id: Annotated[str, Field(min_length=1)]
    filename: str
    mime_type: str


class FileHandle(BaseModel):
    """A handle's value: a file."""

    model_config = STRICT_MODEL

    type: Literal["file"]
    document: FileReference


Handle = Annotated[JsonHandle | FileHandle, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class AssertionReading:
    """What an assertion came to: its verdict, and the value that it addressed, None without one."""

    verdict: Verdict
    actual_value: Any = None


def payload_of(handle: JsonHandle | FileHandle) -> Any:
    """Return the JSON value of a handle; of a file its reference."""
    return handle.data if isinstance(handle, JsonHandle) else handle.document.model_dump()


async def evaluate_assertion(
    assertion: EvalAssertion,
    outputs: Mapping[str, JsonHandle | FileHandle],
    judges: Judges,
    *,
    block_error: str | None = None,
) -> AssertionReading:
    """Return the verdict on the outputs of a block; `block_error` says why it has none.

    Blocked if the block failed, the handle does not exist, or the path leads nowhere; of
    `exists` and `not_exists` the last two say that there is no value.
    """
    target, condition = assertion.target, assertion.condition
    if block_error is not None:
        message = f"the block failed: {block_error}"
        return AssertionReading(blocked(BlockedCode.BLOCK_EXECUTION_FAILED, message))
    resolved = addressed_value(target, outputs)
    if isinstance(resolved, Verdict):
        return AssertionReading(_absent(condition, resolved))
    verdict = await condition.evaluate(resolved.value, judges)
    return AssertionReading(verdict, resolved.value)


def addressed_value(
    target: AssertionTarget, outputs: Mapping[str, JsonHandle | FileHandle]
) -> Resolved | Verdict:
    """Return what stands at the target, or the verdict (blocked) on its absence."""
    handle = outputs.get(target.output_handle_id)
    if handle is None:
        handles = ", ".join(outputs) or "none"
        message = f"the block has no output handle '{target.output_handle_id}'; it has {handles}"
        return blocked(BlockedCode.HANDLE_MISSING, message)
    path = () if target.path is None else parse_path(target.path)
    resolved = resolve(payload_of(handle), path)
    return _unresolved(target, resolved) if isinstance(resolved, Unresolved) else resolved


def _absent(condition: Condition, otherwise: Verdict) -> Verdict:
    """Return the verdict of a condition where there is no value."""
    match condition.kind:
        case "exists":
            return failed(otherwise.message)
        case "not_exists":
            return PASSED
        case _:
            return otherwise


def _unresolved(target: AssertionTarget, unresolved: Unresolved) -> Verdict:
    if unresolved.through_scalar:
        code, reason = BlockedCode.TYPE_ERROR, "goes on below a value that has no such parts"
    else:
        code, reason = BlockedCode.PATH_UNRESOLVED, "leads nowhere"
    after = f"'{unresolved.partial_path}'" if unresolved.partial_path else "the payload"
    return blocked(
        code,
        f"path '{target.path}' {reason}: the last value is at {after}",
        partial_path=unresolved.partial_path,
        partial_value=unresolved.partial_value,
    )


# Where a block's target leaves its handles in the details of the evidence.
HANDLE_OUTPUTS: Final = "handle_outputs"
# Why the block has no outputs.
BLOCK_ERROR: Final = "block_error"
_HANDLES: Final[TypeAdapter[dict[str, Any]]] = TypeAdapter(dict[str, Handle])


class EvalCondition(Check):
    """One condition on one output handle of a block, at an optional path."""

    nested: ClassVar[bool] = True

    target: AssertionTarget
    condition: AnyCondition
    label: str | None = None
    id: str | None = None

    async def check(self, subject: Subject) -> Verdict:
        """Return the verdict, with the whole assertion result in its details."""
        assertion = EvalAssertion.model_construct(
            id=self.id, target=self.target, condition=self.condition, label=self.label
        )
        reading = await evaluate_assertion(
            assertion,
            block_handles(subject.evidence),
            subject.context.judges,
            block_error=subject.evidence.details.get(BLOCK_ERROR),
        )
        verdict = reading.verdict
        return Verdict(
            verdict.outcome,
            verdict.score,
            verdict.message,
            actual=shorten(json_text(reading.actual_value)),
            details={"assertion_result": assertion_result(assertion, reading)},
        )


def block_handles(evidence: Evidence) -> dict[str, Any]:
    """Return the output handles that a replayed block left."""
    return _HANDLES.validate_python(evidence.details.get(HANDLE_OUTPUTS) or {})


def assertion_result(assertion: EvalAssertion, reading: AssertionReading) -> dict[str, Any]:
    """Return what an assertion came to, as the service shows it."""
    verdict, failure = reading.verdict, None
    details = verdict.details or {}
    if verdict.outcome is not Outcome.PASSED:
        failure = {
            "code": details.get("code", "condition_not_met"),
            "message": verdict.message,
            "details": {key: details.get(key) for key in ("partial_path", "partial_value")},
        }
    return {
        "assertion_id": assertion.id or "",
        "condition_kind": assertion.condition.kind,
        "outcome": str(verdict.outcome),
        "actual_value": reading.actual_value,
        "expected_value": assertion.condition.expected_value,
        "failure": failure,
    }
