"""Checks that ask a judge: `llm-grader`, `rubrics`, `llm_judge` (evalcore.judging)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar, Final, Literal, Required

from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag, with_config
from typing_extensions import TypedDict

from evalcore.checks.base import (
    STRICT,
    AssertionValueError,
    Check,
    MeteredJudges,
    Reader,
    Subject,
    passing_score,
)
from evalcore.checks.program import (
    unified_diff,
)
from evalcore.checks.tools import tool_calls_of
from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeSpec
from evalcore.judging.panel import Panel, Vote
from evalcore.judging.prompts import (
    conversation_text,
    expected_text,
    json_text,
    variables_of,
)
from evalcore.judging.rubrics import (
    DEFAULT_PROMPT,
    Criterion,
    Judgement,
    Rubric,
    grade_by_rubric,
    grade_freely,
    passes,
    prompt_digest,
)
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.model.tolerance import reaches
from evalcore.shapes import Declared, OrAbsent, Share, Text, Weight, text_or_mapping
from evalcore.trust.files import with_file_texts
from evalcore.wording import Loc, one_line


class StoredCriterion(Declared):
    """One criterion; `levels` are the scores that a judge may give it, and what they mean."""

    id: str
    outcome: str
    weight: float = 1.0
    required: float | None = None
    levels: list[Annotated[tuple[float, str], Strict(False)]] = Field(default_factory=list)


@with_config(STRICT)
class ScoreRange(TypedDict, total=False):
    """What a range of scores means."""

    score_range: Required[Annotated[list[Weight], Field(min_length=2, max_length=2)]]
    outcome: Required[Text]


def _texts(value: object) -> object:
    """Return a mapping of scores with text as its keys, as JSON has them."""
    if not isinstance(value, dict):
        return value
    numbers = all(isinstance(key, int | float) and not isinstance(key, bool) for key in value)
    return {f"{key:g}": meaning for key, meaning in value.items()} if numbers else value


ScoreRanges = Annotated[
    Annotated[list[ScoreRange], Field(min_length=1), Tag("<list>")]
    | Annotated[dict[str, Text], BeforeValidator(_texts), Field(min_length=1), Tag("<mapping>")],
    Discriminator(lambda value: "<list>" if isinstance(value, list) else "<mapping>"),
]


@with_config(STRICT)
class CriterionShape(TypedDict, total=False):
    """One criterion of a rubric; with `score_ranges` it is scored, else it is met or not."""

    id: Text
    outcome: Text
    description: Text
    weight: Weight
    required: Annotated[bool | Share, Field(union_mode="left_to_right")]
    min_score: Share
    score_ranges: ScoreRanges
    required_min_score: Annotated[int, Field(ge=0, le=10)]
    operator: Literal["correctness", "contradiction"]


CriterionItem = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[CriterionShape, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


def _listed(value: object) -> object:
    """Return a criterion on its own as the list of it."""
    return [value] if isinstance(value, str) else value


Criteria = Annotated[list[CriterionItem], BeforeValidator(_listed), Field(min_length=1)]

# What an operator says to the judge, who sees one text for each criterion.
_OPERATORS: Final = {
    "correctness": (
        "{} (met only if the output states or supports this; leaving it out does not meet it)"
    ),
    "contradiction": (
        "The output makes no claim that contradicts this: {} (it need not mention it)"
    ),
}


def read_criteria(raw: Sequence[Any]) -> list[dict[str, Any]]:
    """Return criteria as `Criterion` takes them; raise `AssertionValueError`."""
    criteria: list[dict[str, Any]] = []
    for index, written in enumerate(raw):
        entry = {"outcome": written} if isinstance(written, str) else dict(written)
        criteria.append(_criterion(entry, index))
    ids = [criterion["id"] for criterion in criteria]
    for name in ids:
        if ids.count(name) > 1:
            raise AssertionValueError(f"two criteria have the id '{name}'")
    if not any(criterion["weight"] for criterion in criteria):
        raise AssertionValueError("no criterion has any weight")
    return criteria


def _criterion(entry: Mapping[str, Any], index: int) -> dict[str, Any]:
    where = f"criteria[{index}]"
    if "outcome" in entry and "description" in entry:
        raise AssertionValueError(f"{where}: 'description' is another name of 'outcome'; keep one")
    outcome = entry.get("outcome", entry.get("description"))
    levels = _levels(entry["score_ranges"], where) if "score_ranges" in entry else []
    if outcome is None and not levels:
        raise AssertionValueError(f"{where}: 'outcome' is required: what the output has to do")
    if "required_min_score" in entry:
        if "min_score" in entry:
            message = "'required_min_score' (0 to 10) and 'min_score' (0 to 1) are both given"
            raise AssertionValueError(f"{where}: {message}; keep one")
        entry = {**entry, "min_score": entry["required_min_score"] / 10}
    if "min_score" in entry and entry.get("required") not in (None, True, False):
        raise AssertionValueError(f"{where}: 'required' and 'min_score' are both numbers; keep one")
    return {
        "id": entry.get("id") or f"criterion-{index + 1}",
        "outcome": _OPERATORS.get(entry.get("operator", ""), "{}").format(
            outcome or "; ".join(meaning for _, meaning in levels)
        ),
        "weight": float(entry.get("weight", 1.0)),
        "required": _required(entry, levels),
        "levels": levels,
    }


def _required(entry: Mapping[str, Any], levels: Sequence[Any]) -> float | None:
    if entry.get("required") is False:
        return None
    if "min_score" in entry:
        return float(entry["min_score"])
    required = entry.get("required")
    if required is True:
        return 0.8 if levels else 1.0
    return None if required is None else float(required)


def _levels(raw: Any, where: str) -> list[tuple[float, str]]:
    """Return the scores of a criterion and what they mean, the lowest first."""
    levels: list[tuple[float, str]] = []
    if isinstance(raw, Mapping):
        for key, meaning in raw.items():
            try:
                levels.append((float(key), meaning))
            except ValueError:
                message = f"{where}: score_ranges: '{key}' is no number"
                raise AssertionValueError(message) from None
    else:
        for score_range in raw:
            low, high = score_range["score_range"]
            if low > high:
                message = f"{where}: score_ranges: [{low:g}, {high:g}] begins after its end"
                raise AssertionValueError(message)
            levels.extend((edge, score_range["outcome"]) for edge in dict.fromkeys((low, high)))
    levels.sort(key=lambda level: level[0])
    if levels[0][0] < 0 or levels[-1][0] <= 0:
        raise AssertionValueError(f"{where}: score_ranges: scores go from 0 up to more than 0")
    return [(float(score), meaning) for score, meaning in levels]


class Judge(Declared):
    """A judge: a target's name (none: the suite's), and what is laid over its options."""

    name: Text | None = None
    model: Text | None = None
    temperature: Weight | None = None

    @property
    def spec(self) -> JudgeSpec:
        """The judge as it is asked."""
        return JudgeSpec(self.name, self.model, self.temperature)


Votes = Annotated[int, Field(ge=1, le=100)]
Aggregation = Literal["mean", "median", "majority"]


class JudgedCheck(Check):
    """A check by judges: which, how often each is asked, and how their scores become one."""

    nested: ClassVar[bool] = True

    judges: list[Judge] = field(default_factory=list)
    votes: Votes = 1
    aggregation: Aggregation = "mean"
    threshold: OrAbsent[Share] = None
    prompt: str | None = None

    @property
    def panel(self) -> Panel:
        """Who is asked."""
        judges = tuple(judge.spec for judge in self.judges) or (JudgeSpec(),)
        return Panel(judges, self.votes, self.aggregation)


@with_config(STRICT)
class JudgeEntry(TypedDict, total=False):
    """One judge of several: a target, and what is laid over its options."""

    name: Text
    target: Text
    model: Text
    temperature: Weight


JudgeItem = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[JudgeEntry, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


class JudgeKeys(TypedDict, total=False):
    """The keys that say who judges: one judge or several."""

    judge: Text
    target: Text
    judges: Annotated[list[JudgeItem], Field(min_length=1)]
    model: Text
    temperature: Weight


def read_judged(written: Mapping[str, Any], reader: Reader) -> dict[str, Any]:
    """Return the fields of a `JudgedCheck` but for its prompt."""
    return {
        "judges": reader.judges(written),
        "votes": written.get("votes", 1),
        "aggregation": written.get("aggregation", "mean"),
        "threshold": passing_score(written),
    }


# Of what a built-in prompt shows beside the output; a prompt that names it gets all of it.
_MOST_UNASKED: Final = 64 * 1024


class UnknownVariableError(ValueError):
    """A prompt has a variable that has no value for this item."""


def material_of(
    subject: Subject, prompt: str | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the texts of the prompt's variables and of those that a judge always sees.

    Attached files stand in them with their text. The metadata, tool calls and changes of files are
    there for a built-in prompt (None, or one that begins with the built-in text) and for one that
    names them. Raise `UnknownVariableError` for one without a value. `more` are texts of the
    assertion's own.
    """
    case, folder = subject.case, subject.context.folder
    texts = {
        "input": conversation_text(with_file_texts(case.input, folder)),
        "output": subject.output,
        "expected_output": expected_text(with_file_texts(case.expected_output, folder)),
        "criteria": case.criteria or "",
        **(more or {}),
    }
    if prompt is None or prompt.startswith(DEFAULT_PROMPT):
        if case.metadata:
            texts["metadata"] = json_text(dict(case.metadata))
        texts["tool_calls"] = _up_to_the_limit(_calls_text(subject))
        texts["file_changes"] = _up_to_the_limit(unified_diff(subject.evidence) or "")
    for name in () if prompt is None else variables_of(prompt):
        if name not in texts:
            texts[name] = _value(name, subject, texts)
    return texts


def _value(name: str, subject: Subject, texts: Mapping[str, str]) -> str:
    if name in {"metadata", "metadata_json"}:
        return json_text(dict(subject.case.metadata))
    if name.startswith("metadata."):
        return _metadata(name, subject.case.metadata)
    if name in {"input_text", "question"}:
        return texts["input"]
    if name in {"output_text", "answer", "candidate_answer"}:
        return texts["output"]
    if name in {"expected_output_text", "reference_answer"}:
        return texts["expected_output"]
    if name == "tool_calls":
        return _calls_text(subject)
    if name == "file_changes":
        return unified_diff(subject.evidence) or ""
    raise UnknownVariableError(f"the prompt has a variable {{{{{name}}}}} that has no value here")


def _calls_text(subject: Subject) -> str:
    return "\n".join(json_text(dict(call)) for call in tool_calls_of(subject.evidence))


def _up_to_the_limit(text: str) -> str:
    """Return a text that no prompt asked for, cut where it is longer than a shown file."""
    if len(text) <= _MOST_UNASKED:
        return text
    return f"{text[:_MOST_UNASKED]}\n[cut: the first {_MOST_UNASKED} of {len(text)} characters]"


def _metadata(name: str, metadata: Mapping[str, Any]) -> str:
    value: Any = metadata
    for part in name.split(".")[1:]:
        if not isinstance(value, Mapping) or part not in value:
            raise UnknownVariableError(f"the prompt asks for {{{{{name}}}}}, which the case lacks")
        value = value[part]
    return value if isinstance(value, str) else json_text(value)


DEFAULT_THRESHOLD = 0.8


class LlmGrader(JudgedCheck):
    """The judges give a score in [0, 1] of at least `threshold` (0.8).

    A judge that gives no valid answer, or none at all, is an error, never a score.
    """

    def check(self, subject: Subject) -> Awaitable[Verdict]:
        """Ask the judges; the score is graded."""
        return self.check_with(subject, {})

    async def check_with(self, subject: Subject, material: Mapping[str, str]) -> Verdict:
        """Ask the judges, who also see these texts, by the names of the prompt's variables."""
        judges, panel, threshold = (
            MeteredJudges(subject.context.judges),
            self.panel,
            _threshold(self),
        )
        try:
            texts = material_of(subject, self.prompt, material)
            judgement = await grade_freely(judges, panel, self.prompt, texts, threshold)
        except (TargetError, UnknownVariableError) as error:
            return judges.on(_no_verdict(self, str(error)))
        reached = reaches(judgement.score, threshold)
        message = _message(judgement.score, threshold, judgement.reasoning, reached=reached)
        prompt = "" if self.prompt is None else f": {one_line(self.prompt)}"
        verdict = Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            judgement.score,
            message,
            expected=f"≥ {threshold:g}{prompt}",
            details=_judgement_details(judgement),
        )
        return judges.on(_advisory_or_not(verdict, judges, panel, judgement.prompt_sha256))

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `llm-grader` means."""
        fields = {**read_judged(written, reader), "prompt": reader.prompt(written.get("prompt"))}
        if "rubrics" in written:
            return "rubrics", {**fields, "criteria": read_criteria(written["rubrics"])}
        return "llm-grader", fields

    @classmethod
    def idle_keys(cls, written: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
        """Return `max_steps` of agents, `preprocessors` of files, `config` of programs."""
        if "config" in written:
            yield ("config",), "a prompt is a text"
        if "max_steps" in written:
            yield ("max_steps",), "a judge answers in one step"
        if "preprocessors" in written:
            yield ("preprocessors",), "what a target answers is text, never a file"

    @classmethod
    def read_judge(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `llm_judge` means.

        What is judged by stands in `config.rubric` (`criteria`, `value`): a text, the path of one,
        or a list of criteria.
        """
        config = reader.validate(LlmJudgeConfig, written.get("config") or {}, "config")
        own = {key: written[key] for key in ("criteria", "min_score") if key in written}
        keys = {**config, **own, "value": written.get("value")}
        names = [key for key in ("rubric", "criteria", "value") if keys.get(key) is not None]
        if len(names) > 1:
            raise AssertionValueError(f"'{names[0]}' and '{names[1]}' mean the same; keep one")
        if not names and not keys.get("prompt"):
            raise AssertionValueError("needs a rubric: what a good output does (`config.rubric`)")
        rubric = keys[names[0]] if names else None
        threshold = written.get("threshold")
        fields = {
            **read_judged(
                {**keys, "threshold": threshold} if threshold is not None else keys, reader
            ),
            "prompt": reader.prompt(keys.get("prompt")),
        }
        if isinstance(rubric, list):
            criteria = reader.validate(Criteria, rubric, *_rubric_place(names[0], written))
            return "rubrics", {**fields, "criteria": read_criteria(criteria)}
        if rubric is not None and (not isinstance(rubric, str) or not rubric.strip()):
            raise AssertionValueError(f"the rubric is a text or a list of criteria, not {rubric!r}")
        text = reader.prompt(rubric)
        if text is not None:
            fields["prompt"] = f"{fields['prompt'] or DEFAULT_PROMPT}\n\nCriteria:\n{text}"
        return "llm-grader", fields


class Rubrics(JudgedCheck):
    """The judges answer every criterion in one call; score = Σ earned weight / Σ weight.

    Passes from `threshold` (0.8) on, unless a required criterion is not met: then the item fails.
    """

    criteria: list[StoredCriterion]

    async def check(self, subject: Subject) -> Verdict:
        """Ask the judges; the score is graded."""
        judges, panel, threshold = (
            MeteredJudges(subject.context.judges),
            self.panel,
            _threshold(self),
        )
        criteria = [
            Criterion(each.id, each.outcome, each.weight, each.required, tuple(each.levels))
            for each in self.criteria
        ]
        try:
            texts = material_of(subject, self.prompt)
            rubric = await grade_by_rubric(judges, panel, criteria, texts, self.prompt)
        except (TargetError, UnknownVariableError) as error:
            return judges.on(_no_verdict(self, str(error)))
        reached = reaches(rubric.score, threshold) and not rubric.failed_required
        verdict = Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            rubric.score,
            _rubric_message(rubric, criteria, threshold, reached=reached),
            expected=f"≥ {threshold:g}",
            details=_rubric_details(rubric, criteria),
        )
        return judges.on(_advisory_or_not(verdict, judges, panel, rubric.prompt_sha256))

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `rubrics` means."""
        fields = {**read_judged(written, reader), "prompt": reader.prompt(written.get("prompt"))}
        return "rubrics", {**fields, "criteria": read_criteria(written["criteria"])}


class LlmGraderKeys(JudgeKeys, total=False):
    """The keys of `llm-grader` that are no fields; with `rubrics` each criterion is answered."""

    prompt: Text
    config: dict[str, Any]
    preprocessors: list[Any]
    rubrics: Criteria
    max_steps: Annotated[int, Field(ge=1)]


class RubricsKeys(JudgeKeys, total=False):
    """The keys of `rubrics` that are no fields, or have another type."""

    prompt: Text
    criteria: Required[Criteria]


class SuiteJudgeKeys(TypedDict, total=False):
    """The keys of `llm_judge` in suite files that are no fields."""

    path: Text
    criteria: Text
    min_score: Share
    config: dict[str, Any] | None
    value: Any


@with_config(STRICT)
class LlmJudgeConfig(JudgeKeys, total=False):
    """The keys in the `config` of `llm_judge`."""

    votes: Votes
    aggregation: Aggregation
    threshold: Share
    rubric: Any
    criteria: Any
    prompt: Text
    min_score: Share
    judges: Any  # judges of their own as well: {provider, model, …}
    judge: Any
    target: Any


def _rubric_place(name: str, written: Mapping[str, Any]) -> tuple[str, ...]:
    return (name,) if name == "value" or name in written else ("config", name)


def _threshold(check: JudgedCheck) -> float:
    return DEFAULT_THRESHOLD if check.threshold is None else check.threshold


def _no_verdict(check: JudgedCheck, message: str) -> Verdict:
    judges = [spec.name for spec in check.panel.judges]
    details = {"prompt_sha256": prompt_digest(check.prompt), "judges": judges}
    return broken(message)._replace(expected=f"≥ {_threshold(check):g}", details=details)


def _advisory_or_not(
    verdict: Verdict, judges: MeteredJudges, panel: Panel, prompt_sha256: str
) -> Verdict:
    """Return the verdict; one of a judge that may not decide is marked so."""
    if all(judges.trusted(spec, prompt_sha256) for spec in panel.judges):
        return verdict
    note = "reported only: the judge is not calibrated for this prompt"
    message = f"{note}; {verdict.message}" if verdict.message else note
    return verdict._replace(message=message, details={**(verdict.details or {}), "advisory": True})


def _message(score: float, threshold: float, reasoning: str, *, reached: bool) -> str:
    sign = "≥" if reached else "<"
    reason = f": {reasoning}" if reasoning else ""
    return one_line(f"the judge gave {score:.4g} {sign} {threshold:g}{reason}")


def _judgement_details(judgement: Judgement) -> dict[str, Any]:
    aspects = [dict(aspect) for vote in judgement.votes for aspect in vote.reading.aspects]
    details: dict[str, Any] = {"prompt_sha256": judgement.prompt_sha256}
    if judgement.reasoning:
        details["reasoning"] = judgement.reasoning
    if aspects:
        details["assertions"] = aspects
    details["votes"] = [{**_voter(vote), "score": vote.reading.score} for vote in judgement.votes]
    return details


def _voter(vote: Vote) -> dict[str, Any]:
    voter: dict[str, Any] = {"judge": vote.judge}
    if model := vote.answers[-1].model:
        voter["model"] = model
    if vote.repairs:
        voter["repairs"] = vote.repairs
    return voter


def _rubric_message(
    rubric: Rubric, criteria: Sequence[Criterion], threshold: float, *, reached: bool
) -> str:
    unmet = [
        criterion.id for criterion in criteria if not passes(criterion, rubric.earned[criterion.id])
    ]
    sign = "≥" if reaches(rubric.score, threshold) else "<"
    parts = [f"{rubric.score:.4g} {sign} {threshold:g}"]
    if rubric.failed_required:
        parts.append(f"required and not met: {_with_reasons(rubric, rubric.failed_required)}")
    elif unmet and not reached:
        parts.append(f"not met: {_with_reasons(rubric, unmet)}")
    return one_line("; ".join(parts))


def _with_reasons(rubric: Rubric, criteria: Sequence[str]) -> str:
    """Return the ids of criteria, each with what the judges say of it."""
    reasons = ((name, _reason(rubric, name)) for name in criteria)
    return ", ".join(f"{name} ({reason})" if reason else name for name, reason in reasons)


def _rubric_details(rubric: Rubric, criteria: Sequence[Criterion]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "prompt_sha256": rubric.prompt_sha256,
        "assertions": [
            {
                "id": criterion.id,
                "text": criterion.outcome,
                "passed": passes(criterion, rubric.earned[criterion.id]),
                "score": rubric.earned[criterion.id],
                "weight": criterion.weight,
                "evidence": _reason(rubric, criterion.id),
            }
            for criterion in criteria
        ],
        "votes": [
            {
                **_voter(vote),
                "checks": {name: check.earned for name, check in vote.reading.checks.items()},
                "missing": list(vote.reading.missing),
            }
            for vote in rubric.votes
        ],
    }
    reasons = dict.fromkeys(vote.reading.reasoning for vote in rubric.votes)
    if any(reasons):
        details["reasoning"] = "; ".join(reason for reason in reasons if reason)
    if rubric.failed_required:
        details["failed_required"] = list(rubric.failed_required)
    return details


def _reason(rubric: Rubric, criterion_id: str) -> str:
    reasons = []
    for vote in rubric.votes:
        check = vote.reading.checks.get(criterion_id)
        reasons.append("not answered by the judge" if check is None else check.reasoning)
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
