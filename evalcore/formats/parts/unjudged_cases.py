"""Cases whose assertions need a judge where the suite has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from evalcore.errors import LoadError, Problem
from evalcore.model.assertion import Assertion
from evalcore.model.identity import JUDGED, judge_name, judges_named
from evalcore.model.suite import Case, SuiteDefinition
from evalcore.model.target import Target
from evalcore.targets.registry import MODEL_KINDS

_MAX_NAMES: Final = 3
_WARNING: Final = (
    "{cases} a judge and the suite has none, so the run ends them as blocked: add a target called "
    "'judge' to `targets` or targets.yaml, name one (`grader_target`; elsewhere "
    "`evalcore: {{judge: NAME}}`), or assert what needs no judge, such as `equals` or `contains` "
    "(for a table `columns: {{equals: COLUMN}}`)"
)
_OWN_WARNING: Final = (
    "{cases} a judge and the suite has none, so the model that answers judges its own answers, as "
    "in AgentV; another model is a stricter judge: add a target called 'judge' to `targets` or "
    "targets.yaml, or name one (`grader_target`)"
)
_SCORER_WARNING: Final = (
    "{scorers} a judge and the suite has none, so nothing is measured: name {their} `judge`, or "
    "the suite's (`evalcore: {{judge: NAME}}`, or a target called 'judge')"
)
_JUDGED_SCORER: Final = "llm_judge"


class UnjudgedCases:
    """Counts cases that ask the default judge, by the target that they name themselves."""

    def __init__(self) -> None:
        self._counts: Counter[str | None] = Counter()
        self._names: dict[str | None, list[str]] = {}

    def note(self, case: Case) -> None:
        """Count the case if an assertion of it leaves the judge to the suite or the target."""
        for assertion in case.assertions:  # twice as quick as `any` where there is none
            if assertion.check in JUDGED and _asks_default_judge(assertion):
                break
        else:
            return
        self._counts[case.target] += 1
        names = self._names.setdefault(case.target, [])
        if len(names) < _MAX_NAMES:
            names.append(case.id)

    def __bool__(self) -> bool:
        """Whether there is such a case."""
        return bool(self._counts)

    def judged_by_themselves(
        self, definition: SuiteDefinition, *, strict: bool
    ) -> tuple[SuiteDefinition, list[str]]:
        """Return the suite in which models judge their answers if nothing else does; warnings.

        In strict mode the warning is raised.
        """
        own = {
            target.name: replace(target, options={**target.options, "grader_target": target.name})
            for named in self._counts
            for target in _without_judge(named, definition)
            if target is not None and target.kind in MODEL_KINDS
        }
        if not own:
            return definition, []
        before = {named for named in self._counts if _has_no_judge(named, definition)}
        definition = replace(definition, targets={**definition.targets, **own})
        judged = [named for named in before if not _has_no_judge(named, definition)]
        texts = [_OWN_WARNING.format(cases=self._cases(judged))] if judged else []
        return definition, _unless_strict(texts, definition, strict=strict)

    def warnings(self, definition: SuiteDefinition, *, strict: bool) -> list[str]:
        """Return the warnings, none where each case has a judge; in strict mode raise them."""
        texts = [*self._of_cases(definition), *_of_scorers(definition)]
        return _unless_strict(texts, definition, strict=strict)

    def _of_cases(self, definition: SuiteDefinition) -> Iterator[str]:
        unjudged = [name for name in self._counts if _has_no_judge(name, definition)]
        if unjudged:
            yield _WARNING.format(cases=self._cases(unjudged))

    def _cases(self, targets: Iterable[str | None]) -> str:
        """Return the cases of these targets as the subject of a sentence, with its verb."""
        targets = list(targets)
        count = sum(self._counts[name] for name in targets)
        ids = [case for name in targets for case in self._names[name]][:_MAX_NAMES]
        names = ", ".join(f"'{case}'" for case in ids) + (", …" if count > len(ids) else "")
        return f"case {names} needs" if count == 1 else f"{count} cases ({names}) need"


def _unless_strict(texts: list[str], definition: SuiteDefinition, *, strict: bool) -> list[str]:
    if strict and texts:
        file = definition.source.path
        raise LoadError(tuple(Problem(file, None, "", text) for text in texts))
    return texts


def _of_scorers(definition: SuiteDefinition) -> Iterator[str]:
    """Yield a warning about scorers that leave the judge to a suite without one."""
    names = [
        f"'{scorer.name}'"
        for scorer in definition.scorers
        if scorer.kind == _JUDGED_SCORER and scorer.params.get("judge") is None
    ]
    if names and _has_no_judge(None, definition):
        several = len(names) > 1
        scorers = f"scorers {', '.join(names)} need" if several else f"scorer {names[0]} needs"
        yield _SCORER_WARNING.format(scorers=scorers, their="their" if several else "its")


def _asks_default_judge(assertion: Assertion) -> bool:
    # `similar` embeds with OpenAI where no target is named.
    if assertion.check == "similar":
        return False
    if assertion.check != "composite":
        return None in judges_named((assertion,))
    members = assertion.params.get("members", ())
    own = assertion._replace(params={**assertion.params, "members": ()})
    return None in judges_named((own,)) or any(
        _asks_default_judge(Assertion(*member)) for member in members
    )


def _has_no_judge(target: str | None, definition: SuiteDefinition) -> bool:
    """Whether a variant's answer to cases of this target of their own has no judge."""
    return any(True for _ in _without_judge(target, definition))


def _without_judge(target: str | None, definition: SuiteDefinition) -> Iterator[Target | None]:
    """Yield what answers cases of this target of their own and has no judge, for each variant."""
    for variant in definition.variants:
        name = target or variant.target or definition.default_target
        answering = definition.targets.get(name or "")
        if judge_name(None, answering, definition) is None:
            yield answering
