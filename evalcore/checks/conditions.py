"""Conditions of saved evals: one assertion about one output handle of a workflow block."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from evalcore.wording import counted, describe, json_text, quote_pattern, shorten

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


class Condition(BaseModel):
    """One kind of condition: its fields as they stand in a request, and when it holds.

    On a value of other types than `takes`, whose name is `wanted`, it is blocked. `wrong` is the
    message where it does not hold: {0} is the value, {1} what is expected. A `negated` kind is the
    opposite of the kind that it derives from; it is blocked for the same values.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    shown_field: ClassVar[str] = "expected"
    takes: ClassVar[tuple[type, ...]] = (object,)
    wanted: ClassVar[str] = ""
    wrong: ClassVar[str] = ""
    negated: ClassVar[bool] = False

    kind: str

    @property
    def asks(self) -> Literal["judge", "embeddings"] | None:
        """What is asked of a model; None if nothing is."""
        return None

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

    def holds(self, value: Any) -> bool | Verdict:
        """Whether the condition holds, or another verdict on a value that it takes."""
        raise NotImplementedError

    def message(self, value: Any) -> str:
        """Return what is wrong with a value."""
        return self.wrong.format(_brief(value), _brief(getattr(self, self.shown_field, None)))

    async def evaluate(self, value: Any, judges: Judges) -> Verdict:
        """Return the verdict on the addressed JSON value; conditions that ask wait here."""
        is_taken = isinstance(value, self.takes)
        if not is_taken or (int in self.takes and isinstance(value, bool)):
            return type_error(self.wanted, value)
        holds = await self.ask(value, judges) if self.asks else self.holds(value)
        if isinstance(holds, Verdict):
            return holds
        return PASSED if holds is not self.negated else failed(self.message(value))

    async def ask(self, value: Any, judges: Judges) -> bool | Verdict:
        """Return what `holds` does, of a condition that asks."""
        raise NotImplementedError


def type_error(expected: str, value: Any) -> Verdict:
    """Return the verdict on a value whose type the condition does not fit."""
    return blocked(BlockedCode.TYPE_ERROR, f"expected {expected}, got {describe(value)}")


def _brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return shorten(json_text(value), 120)


_OPERATORS: Final[Mapping[str, tuple[str, Callable[[float, float], bool]]]] = {
    "gt": (">", operator.gt),
    "gte": ("≥", operator.ge),
    "lt": ("<", operator.lt),
    "lte": ("≤", operator.le),
    "eq": ("=", operator.eq),
    "neq": ("≠", operator.ne),
}


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

    def holds(self, value: Any) -> bool:  # noqa: ARG002 - that there is one is all
        """True: there is a value."""
        return True


class NotExists(Condition):
    """There is no value at the path: a missing key, an index out of range, a path through null."""

    wrong: ClassVar[str] = "there is a value: {0}"

    kind: Literal["not_exists"]

    def holds(self, value: Any) -> bool:  # noqa: ARG002 - that there is one is all
        """False: there is a value."""
        return False


class Equals(Condition):
    """The value is `expected`: deep, typed, in any order of keys."""

    wrong: ClassVar[str] = "{0} is not {1}"

    kind: Literal["equals"]
    expected: Any

    def holds(self, value: Any) -> bool:
        """Compare; `reasoning___` keys of both sides do not count."""
        return same_json(without_reasoning(value), without_reasoning(self.expected))


class NotEquals(Equals):
    """The value is not `expected`."""

    negated: ClassVar[bool] = True
    wrong: ClassVar[str] = "the value is {1}"

    kind: Literal["not_equals"]  # type: ignore[assignment]  # its opposite is another kind


class Contains(Condition):
    """A text contains the text `expected`, or a list has `expected` as an element."""

    takes: ClassVar[tuple[type, ...]] = (str, list)
    wanted: ClassVar[str] = "text or a list"
    wrong: ClassVar[str] = "{0} does not contain {1}"

    kind: Literal["contains"]
    expected: Any

    def holds(self, value: Any) -> bool | Verdict:
        """Search; blocked for a text in search of none."""
        expected = self.expected
        if isinstance(value, list):
            return any(same_json(element, expected) for element in value)
        return expected in value if isinstance(expected, str) else type_error("text", expected)


class NotContains(Contains):
    """A text does not contain the text `expected`, or a list lacks it."""

    negated: ClassVar[bool] = True
    wrong: ClassVar[str] = "{0} contains {1}"

    kind: Literal["not_contains"]  # type: ignore[assignment]  # its opposite is another kind


class ObjectContains(Condition):
    """The value is an object that has all of `expected`, recursively."""

    takes: ClassVar[tuple[type, ...]] = (dict,)
    wanted: ClassVar[str] = "an object"
    wrong: ClassVar[str] = "{0} does not contain {1}"

    kind: Literal["object_contains"]
    expected: dict[str, Any]

    def holds(self, value: Any) -> bool:
        """Search; `reasoning___` keys do not count."""
        return contains_object(without_reasoning(value), without_reasoning(self.expected))


class ArrayContains(Condition):
    """One element of a list contains the object `expected`, or equals another value."""

    takes: ClassVar[tuple[type, ...]] = (list,)
    wanted: ClassVar[str] = "a list"
    wrong: ClassVar[str] = "no element of {0} contains {1}"

    kind: Literal["array_contains"]
    expected: Any

    def holds(self, value: Any) -> bool:
        """Search; `reasoning___` keys do not count."""
        expected = without_reasoning(self.expected)
        return any(contains_object(without_reasoning(element), expected) for element in value)


class _NumberCondition(Condition):
    takes: ClassVar[tuple[type, ...]] = (int, float)
    wanted: ClassVar[str] = "a number"


class NumberCompare(_NumberCondition):
    """A number compares with `expected` as `op` says."""

    noun: ClassVar[str] = ""

    kind: Literal["number_compare"]
    op: Literal["gt", "gte", "lt", "lte", "eq", "neq"]
    expected: Number

    def holds(self, value: Any) -> bool:
        """Compare; numeric texts and booleans are no numbers."""
        return _OPERATORS[self.op][1](self.measured(value), self.expected)

    def measured(self, value: Any) -> float:
        """Return the number that is compared."""
        return value  # type: ignore[no-any-return]  # `takes` says that it is one

    def message(self, value: Any) -> str:
        """Return the comparison that does not hold."""
        sign, _ = _OPERATORS[self.op]
        return f"{self.noun}{self.measured(value)} is not {sign} {_brief(self.expected)}"


class Between(_NumberCondition):
    """A number lies between `lower` and `upper`, both included unless `inclusive` is false."""

    kind: Literal["between"]
    lower: Number
    upper: Number
    inclusive: bool = True

    def mistakes(self) -> Iterator[str]:
        """Yield that no number lies between the bounds."""
        if self.lower > self.upper:
            yield f"lower ({_brief(self.lower)}) is above upper ({_brief(self.upper)})"

    @property
    def expected_value(self) -> Any:
        """Both bounds, and whether they count."""
        return {"lower": self.lower, "upper": self.upper, "inclusive": self.inclusive}

    def holds(self, value: Any) -> bool:
        """Compare; numeric texts and booleans are no numbers."""
        if self.inclusive:
            return bool(self.lower <= value <= self.upper)
        return bool(self.lower < value < self.upper)

    def message(self, value: Any) -> str:
        """Return the bounds."""
        return f"{value} is not between {_brief(self.lower)} and {_brief(self.upper)}"


class LengthCompare(NumberCompare):
    """The length of a text, a list or an object compares with `expected` as `op` says."""

    takes: ClassVar[tuple[type, ...]] = (str, list, dict)
    wanted: ClassVar[str] = "text, a list or an object"
    noun: ClassVar[str] = "length "

    kind: Literal["length_compare"]  # type: ignore[assignment]  # another kind of comparison

    def measured(self, value: Any) -> float:
        """Return the length, of a text its number of code points."""
        return len(value)


class JsonSchemaValid(Condition):
    """The value conforms to a JSON Schema; nothing that it refers to is fetched."""

    shown_field: ClassVar[str] = "schema"

    kind: Literal["json_schema_valid"]
    schema_: dict[str, Any] | bool = Field(alias="schema")

    def faults(self) -> Iterator[Fault]:
        """Yield what makes the schema none, and what of it has no effect."""
        for each in schema_faults(self.schema_):
            yield each._replace(path=("schema", *each.path))

    def holds(self, value: Any) -> Verdict:
        """Return the verdict; blocked if the schema is not valid or cannot be applied."""
        try:
            mistake = first_mistake(value, self.schema_, SCHEMA_PATTERN_S)
        except SchemaProblem as error:
            return blocked(BlockedCode.SCHEMA_INVALID, str(error))
        return PASSED if mistake is None else failed(mistake)


class _TextCondition(Condition):
    takes: ClassVar[tuple[type, ...]] = (str,)
    wanted: ClassVar[str] = "text"


class StartsWith(_TextCondition):
    """The text begins with `expected`; case counts."""

    wrong: ClassVar[str] = "{0} does not start with {1}"

    kind: Literal["starts_with"]
    expected: str

    def holds(self, value: Any) -> bool:
        """Compare the beginnings."""
        return bool(value.startswith(self.expected))


class EndsWith(_TextCondition):
    """The text ends with `expected`; case counts."""

    wrong: ClassVar[str] = "{0} does not end with {1}"

    kind: Literal["ends_with"]
    expected: str

    def holds(self, value: Any) -> bool:
        """Compare the ends."""
        return bool(value.endswith(self.expected))


class MatchesRegex(_TextCondition):
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

    def holds(self, value: Any) -> bool | Verdict:
        """Match; blocked if the pattern is not valid or takes too long."""
        try:
            return compile_pattern(self.pattern).fullmatch(value, SCHEMA_PATTERN_S) is not None
        except PatternError as error:
            return blocked(BlockedCode.INVALID_REGEX, str(error))

    def message(self, value: Any) -> str:
        """Return the pattern as its author wrote it."""
        return f"{_brief(value)} does not match {quote_pattern(self.pattern)}"


class SimilarityGte(_TextCondition):
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
    def asks(self) -> Literal["embeddings"] | None:
        """Embeddings, if that is its method."""
        return "embeddings" if self.method == "embeddings" else None

    def holds(self, value: Any) -> Verdict:
        """Return the verdict by edit distance; two empty texts are the same."""
        from rapidfuzz.distance import Levenshtein

        return self._verdict(Levenshtein.normalized_similarity(value, self.reference))

    async def ask(self, value: Any, judges: Judges) -> Verdict:
        """Return the verdict by embeddings; blocked if there are none."""
        try:
            embedded = await judges.embed(JudgeSpec(), [self.reference, value])
            return self._verdict(cosine(*embedded.vectors))
        except (TargetError, ValueError) as error:
            return blocked(BlockedCode.JUDGE_UNAVAILABLE, str(error))

    def _verdict(self, similarity: float) -> Verdict:
        wrong = f"similarity {similarity:.4g} < {self.threshold:g}"
        return PASSED if reaches(similarity, self.threshold) else failed(wrong)


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

    def holds(self, value: Any) -> Verdict:
        """Return the verdict; the value is `{splits: […]}` or the list itself."""
        listed = value.get("splits") if isinstance(value, dict) else value
        try:
            score = _mean_iou(_pages(_ACTUAL.validate_python(listed)), _pages(self.expected.splits))
        except ValidationError:
            return type_error("splits, a list of {name, pages}", value)
        wrong = f"mean IoU {score:.4g} < {self.threshold:g}"
        return PASSED if reaches(score, self.threshold) else failed(wrong)


def _pages(splits: Iterable[Split]) -> dict[str, set[int]]:
    """Return the pages of each name; parts of the same name are one."""
    pages: dict[str, set[int]] = {}
    for split in splits:
        pages.setdefault(split.name, set()).update(split.pages)
    return pages


def _mean_iou(actual: Mapping[str, set[int]], expected: Mapping[str, set[int]]) -> float:
    """Return the mean intersection over union over all names; 1.0 if there are none."""
    shares = []
    for name in {**expected, **actual}:
        union = actual.get(name, set()) | expected.get(name, set())
        both = name in actual and name in expected
        common = len(actual[name] & expected[name]) if both else 0
        shares.append(common / len(union) if union else float(both))
    return fsum(shares) / len(shares) if shares else 1.0


Label = Annotated[str, Field(min_length=1)]
DEFAULT_LABELS: Final = ("yes", "no")
_PROMPT: Final = (
    "Choose the label of the value by the rubric.\n\nRubric: {{rubric}}\n\nLabels: {{labels}}\n\n"
    "Value: {{value}}\n\n"
    'Answer with JSON only, in this form: {"label": one of the labels, "reasoning": one sentence}'
)


class LlmJudgedAs(Condition):
    """A judge gives the value the label `expected_label`, by the rubric."""

    shown_field: ClassVar[str] = "expected_label"

    kind: Literal["llm_judged_as"]
    rubric: Label
    labels: Annotated[list[Label], Field(min_length=1, default_factory=lambda: [*DEFAULT_LABELS])]
    expected_label: Label = "yes"

    @property
    def asks(self) -> Literal["judge"]:
        """A judge."""
        return "judge"

    def mistakes(self) -> Iterator[str]:
        """Yield why no judge could meet the condition."""
        if _folded(self.expected_label) not in map(_folded, self.labels):
            yield (
                f"expected_label '{self.expected_label}' is not one of the labels: "
                + ", ".join(self.labels)
            )

    async def ask(self, value: Any, judges: Judges) -> Verdict:
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
        return PASSED if is_expected is not self.negated else failed(f"judged as '{vote.reading}'")

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


class LlmNotJudgedAs(LlmJudgedAs):
    """A judge gives the value another label than `expected_label`."""

    negated: ClassVar[bool] = True

    kind: Literal["llm_not_judged_as"]  # type: ignore[assignment]  # its opposite is another kind


def _folded(label: str) -> str:
    return label.strip().casefold()


class _NestedCondition(Condition):
    """A condition on the elements of a list; on anything else it is blocked."""

    shown_field: ClassVar[str] = "condition"

    condition: AnyCondition

    @property
    def asks(self) -> Literal["judge", "embeddings"] | None:
        """What the nested condition asks."""
        asked: Literal["judge", "embeddings"] | None = self.condition.asks
        return asked

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


def payload_of(handle: JsonHandle | FileHandle) -> Any:
    """Return the JSON value of a handle; of a file its reference."""
    return handle.data if isinstance(handle, JsonHandle) else handle.document.model_dump()


async def evaluate_assertion(
    assertion: EvalAssertion | EvalCondition,
    outputs: Mapping[str, JsonHandle | FileHandle],
    judges: Judges,
    *,
    block_error: str | None = None,
) -> tuple[Verdict, Any]:
    """Return the verdict on the outputs of a block, and the value that is addressed.

    `block_error` says why the block has no outputs. Blocked if the block failed, the handle does
    not exist, or the path leads nowhere; of `exists` and `not_exists` the last two say that there
    is no value.
    """
    condition = assertion.condition
    if block_error is not None:
        message = f"the block failed: {block_error}"
        return blocked(BlockedCode.BLOCK_EXECUTION_FAILED, message), None
    resolved = addressed_value(assertion.target, outputs)
    if isinstance(resolved, Resolved):
        return await condition.evaluate(resolved.value, judges), resolved.value
    of_absence = {"exists": failed(resolved.message), "not_exists": PASSED}
    return of_absence.get(condition.kind, resolved), None


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
        """Return the verdict; its details have the result as the service shows it."""
        evidence, judges = subject.evidence, subject.context.judges
        error = evidence.details.get(BLOCK_ERROR)
        verdict, value = await evaluate_assertion(
            self, block_handles(evidence), judges, block_error=error
        )
        details, failure = verdict.details or {}, None
        if verdict.outcome is not Outcome.PASSED:
            failure = {
                "code": details.get("code", "condition_not_met"),
                "message": verdict.message,
                "details": {key: details.get(key) for key in ("partial_path", "partial_value")},
            }
        result = {
            "assertion_id": self.id or "",
            "condition_kind": self.condition.kind,
            "outcome": str(verdict.outcome),
            "actual_value": value,
            "expected_value": self.condition.expected_value,
            "failure": failure,
        }
        actual = shorten(json_text(value))
        return verdict._replace(actual=actual, expected=None, details={"assertion_result": result})


def block_handles(evidence: Evidence) -> dict[str, Any]:
    """Return the output handles that a replayed block left."""
    return _HANDLES.validate_python(evidence.details.get(HANDLE_OUTPUTS) or {})
