"""Scorers that ask: a judge's score, the similarity of embeddings."""

from __future__ import annotations

from evalcore.checks.scorers.score import Score
from evalcore.checks.scorers.similarity import compared
from evalcore.errors import EvalError
from evalcore.judging.asking import Judges, JudgeSpec
from evalcore.judging.grading import DEFAULT_PROMPT, grade_freely
from evalcore.judging.panel import Panel
from evalcore.judging.texts import conversation_text, expected_text
from evalcore.judging.vectors import cosine
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case, ScorerSpec


async def llm_judge(spec: ScorerSpec, evidence: Evidence, case: Case, judges: Judges) -> Score:
    """Score the output by `criteria`, else by the case's; no value where no judge gives one."""
    params = spec.params
    criteria = params.get("criteria")
    prompt = None if criteria is None else f"{DEFAULT_PROMPT}\n\nCriteria:\n{_plain(criteria)}"
    if evidence.output is None:
        return Score(spec.name, None, error="there is no output")
    material = {
        "input": conversation_text(case.input),
        "output": evidence.output,
        "expected_output": expected_text(case.expected_output),
        "criteria": case.criteria or "",
    }
    judge = JudgeSpec(params.get("judge"), params.get("model"))
    try:
        found = await grade_freely(judges, Panel((judge,)), prompt, material, 0.8)
    except EvalError as error:
        return Score(spec.name, None, error=str(error))
    return Score(spec.name, found.score, found.score)


async def embedding(spec: ScorerSpec, evidence: Evidence, case: Case, judges: Judges) -> Score:
    """Score the cosine of the embeddings of what stands at `path` and of what is expected."""
    texts = compared(spec, evidence, case)
    if isinstance(texts, Score):
        return texts
    asked = JudgeSpec(spec.params.get("judge"), spec.params.get("model"))
    try:
        found = await judges.embed(asked, list(texts))
        value = cosine(*found.vectors)
    except (EvalError, ValueError) as error:
        return Score(spec.name, None, error=str(error))
    return Score(spec.name, min(1.0, max(0.0, value)), value)


def _plain(text: str) -> str:
    return text.replace("{{", "{ {").replace("}}", "} }")
