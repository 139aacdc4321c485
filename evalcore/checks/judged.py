"""Checks that ask a judge: `llm-grader`, `rubrics`, `llm_judge` (evalcore.judging)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar, Final, Literal, Required

from pydantic import Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from evalcore.checks.base import (
    DEFAULT_THRESHOLD,
    AssertionValueError,
    Check,
    MeteredJudges,
    Reader,
    Subject,
    passing_score,
)
from evalcore.checks.criteria import Criteria, read_criteria
from evalcore.checks.program import unified_diff
from evalcore.checks.tools import tool_calls_of
from evalcore.errors import TargetError
from evalcore.judging.asking import Judges, JudgeSpec, cosine
from evalcore.judging.panel import (
    DEFAULT_PROMPT,
    Criterion,
    Judgement,
    Panel,
    Rubric,
    Vote,
    grade_by_rubric,
    grade_freely,
    prompt_digest,
)
from evalcore.judging.prompts import ALIASES, conversation_text, expected_text, variables_of
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.model.evidence import NOTHING
from evalcore.model.scoring import reaches
from evalcore.shapes import (
    STRICT,
    Declared,
    OrAbsent,
    Scalar,
    Share,
    Text,
    TextOrTexts,
    Weight,
    text_or_mapping,
)
from evalcore.trust.files import with_file_texts
from evalcore.wording import Loc, json_text, one_line, value_text


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

    @property
    def least(self) -> float:
        """The score from which the check passes."""
        return DEFAULT_THRESHOLD if self.threshold is None else self.threshold

    async def check(self, subject: Subject, material: Mapping[str, str] = NOTHING) -> Verdict:
        """Ask the judges, who also see these texts, by the names of the prompt's variables."""
        judges = MeteredJudges(subject.context.judges)
        try:
            verdict = await self.judged(judges, material_of(subject, self.prompt, material))
        except (TargetError, UnknownVariableError) as error:
            names = [spec.name for spec in self.panel.judges]
            details = {"prompt_sha256": prompt_digest(self.prompt), "judges": names}
            expected = f"≥ {self.least:g}"
            verdict = broken(str(error))._replace(expected=expected, details=details)
        return judges.on(verdict)

    async def judged(self, judges: Judges, texts: Mapping[str, str]) -> Verdict:
        """Return the verdict of the judges; raise `TargetError` without one."""
        raise NotImplementedError


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
    metadata, named = case.metadata, () if prompt is None else variables_of(prompt)
    texts = {
        "input": conversation_text(with_file_texts(case.input, folder)),
        "output": subject.output,
        "expected_output": expected_text(with_file_texts(case.expected_output, folder)),
        "criteria": case.criteria or "",
    }
    unasked: dict[str, str] = {}
    if metadata or not set(named).isdisjoint(ALIASES["metadata"]):
        unasked["metadata"] = json_text(dict(metadata))
    unasked["tool_calls"] = "\n".join(map(json_text, tool_calls_of(subject.evidence)))
    unasked["file_changes"] = unified_diff(subject.evidence) or ""
    for name, text in unasked.items():
        if not set(named).isdisjoint(ALIASES[name]):
            texts[name] = text
        elif prompt is None or prompt.startswith(DEFAULT_PROMPT):
            texts[name] = text if name == "metadata" else _up_to_the_limit(text)
    for name, aliases in ALIASES.items():
        if name in texts:
            texts |= dict.fromkeys(aliases, texts[name])
    texts |= more or {}
    for name in named:
        if name.startswith("metadata."):
            texts[name] = _metadata(name, metadata)
        elif name not in texts:
            message = f"the prompt has a variable {{{{{name}}}}} that has no value here"
            raise UnknownVariableError(message)
    return texts


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


class LlmGrader(JudgedCheck):
    """The judges give a score in [0, 1] of at least `threshold` (0.8).

    A judge that gives no valid answer, or none at all, is an error, never a score.
    """

    async def judged(self, judges: Judges, texts: Mapping[str, str]) -> Verdict:
        """Ask for a score."""
        least, prompt = self.least, self.prompt
        judgement = await grade_freely(judges, self.panel, prompt, texts, least)
        reached = reaches(judgement.score, least)
        reason = f": {judgement.reasoning}" if judgement.reasoning else ""
        sign = "≥" if reached else "<"
        return Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            judgement.score,
            one_line(f"the judge gave {judgement.score:.4g} {sign} {least:g}{reason}"),
            expected=f"≥ {least:g}" + ("" if prompt is None else f": {one_line(prompt)}"),
            details=_judgement_details(judgement),
        )

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
            own_place = names[0] == "value" or names[0] in written
            place = names[:1] if own_place else ["config", names[0]]
            criteria = reader.validate(Criteria, rubric, *place)
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

    criteria: list[Criterion]

    async def judged(self, judges: Judges, texts: Mapping[str, str]) -> Verdict:
        """Ask about each criterion."""
        criteria = self.criteria
        rubric = await grade_by_rubric(judges, self.panel, criteria, texts, self.prompt)
        reached = reaches(rubric.score, self.least) and not rubric.failed_required
        return Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            rubric.score,
            _rubric_message(rubric, criteria, self.least, reached=reached),
            expected=f"≥ {self.least:g}",
            details=_rubric_details(rubric, criteria),
        )

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
    unmet = [each.id for each in criteria if not reaches(rubric.earned[each.id], each.threshold)]
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
                "passed": reaches(rubric.earned[criterion.id], criterion.threshold),
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


class Similar(Check):
    """The cosine of the embeddings of output and `value`, at least 0, reaches `threshold`.

    Of several values the nearest counts; without `value` the case's expected output is taken.
    """

    nested: ClassVar[bool] = True

    value: str | list[str] | None = None
    threshold: float = DEFAULT_THRESHOLD
    judges: list[Judge] = field(default_factory=list)

    @property
    def panel(self) -> Panel:
        """Who is asked: the first of the judges."""
        return Panel(tuple(judge.spec for judge in self.judges) or (JudgeSpec(),))

    async def check(self, subject: Subject) -> Verdict:
        """Ask for the embeddings; the score is graded."""
        value = self.value
        reference = expected_text(subject.case.expected_output) if value is None else value
        texts = reference if isinstance(reference, list) else [reference]
        if not all(texts):
            return broken("there is nothing to compare with: no 'value' and no 'expected_output'")
        judges = MeteredJudges(subject.context.judges)
        try:
            embedded = await judges.embed(self.panel.judges[0], [*texts, subject.output])
            *references, output = embedded.vectors
            score = min(1.0, max(0.0, *(cosine(vector, output) for vector in references)))
        except (TargetError, ValueError) as error:
            return broken(str(error))
        reached = reaches(score, self.threshold)
        verdict = Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            score,
            f"cosine similarity {score:.4g} {'≥' if reached else '<'} {self.threshold:g}",
            expected="; ".join(texts),
            details={"model": embedded.model},
        )
        return judges.on(verdict)

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `similar` means in test files."""
        return "similar", {
            "value": written.get("value"),
            "threshold": float(written.get("threshold", DEFAULT_THRESHOLD)),
            "judges": [reader.embedding(written)],
        }

    @classmethod
    def read_config(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `similar` means in workflow files and suites."""
        config = reader.validate(SimilarConfig, written.get("config") or {}, "config")
        threshold = written.get("threshold")
        if threshold is None:
            threshold = config.get("threshold", DEFAULT_THRESHOLD)
        options = {key: value for key, value in config.items() if key != "threshold"}
        judge = reader.inline_judge(options) if "provider" in options else reader.embedding(options)
        value = value_text(written["value"])
        return "similar", {"value": value, "threshold": float(threshold), "judges": [judge]}


@with_config(STRICT)
class SimilarKeys(TypedDict, total=False):
    """The keys of `similar` in test files."""

    value: TextOrTexts
    threshold: Share
    judge: Text
    target: Text
    model: Text


class SimilarValue(TypedDict, total=False):
    """The keys of `similar` in workflow files."""

    value: Required[Scalar]


@with_config(STRICT)
class SimilarConfig(TypedDict, total=False):
    """The keys in the `config` of `similar` in workflow files and suites."""

    judge: Text
    target: Text
    model: Text
    provider: Text
    base_url: Text
    api_key: Text
    threshold: Share
