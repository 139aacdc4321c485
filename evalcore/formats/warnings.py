"""Warnings about cases, and what is wrong with an assertion whatever the output.

Repeated warnings are one line. In workflow files what is empty is a warning, because the program of
those files takes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from evalcore.checks.base import Check
from evalcore.checks.json import TransformError, compile_transform
from evalcore.checks.registry import find_check
from evalcore.checks.text import ECMASCRIPT_TRIMMED
from evalcore.errors import LoadError, Problem
from evalcore.model.assertion import Assertion
from evalcore.model.identity import JUDGED, judge_name, judges_named
from evalcore.model.suite import Case, SuiteDefinition
from evalcore.model.target import Target
from evalcore.problems import Problems
from evalcore.targets.registry import MODEL_KINDS
from evalcore.wording import Loc, path_text

if TYPE_CHECKING:
    from evalcore.checks.conditions import Condition


_MOST_LINES: Final = 3
_MOST_NAMES: Final = 50


class CaseWarnings:
    """Collects warnings about cases; in strict mode each is a mistake instead."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._names: dict[str, list[str]] = {}

    def add(self, reason: str, loc: Loc, problems: Problems, *, name: str = "") -> None:
        """Keep a warning about what stands at `loc` and is called `name`, its path by default."""
        if self._strict:
            problems.add(loc, reason, label=name)
        else:
            self._names.setdefault(reason, []).append(name or path_text(loc))

    def add_replaced(self, name: str, loc: Loc, problems: Problems) -> None:
        """Keep a warning for each thing that was replaced in the row that is being read."""
        for note in problems.replaced:
            self.add(note, loc, problems, name=name)

    @property
    def texts(self) -> list[str]:
        """The warnings, in the order of the first of each; of many places the first ones."""
        texts: list[str] = []
        for reason, names in self._names.items():
            if len(names) <= _MOST_LINES:
                texts += (f"{name}: {reason}" for name in dict.fromkeys(names))
            else:
                listed = [*names[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else [])]
                texts.append(f"{', '.join(listed)} ({len(names)}): {reason}")
        return texts


_MAX_JUDGE_NAMES: Final = 3
_INSTEAD: Final = (
    "add a target called 'judge' to `targets` or targets.yaml, or name one (`grader_target`; "
    "elsewhere `evalcore: {judge: NAME}`)"
)
_BLOCKED: Final = (
    f"so the run ends them as blocked: {_INSTEAD}, or assert what needs no judge, such as `equals` "
    "or `contains` (for a table `columns: {equals: COLUMN}`)"
)
_OWN_JUDGE: Final = (
    "so the model that answers judges its own answers, as in AgentV; another model is a stricter "
    f"judge: {_INSTEAD}"
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
        if len(names) < _MAX_JUDGE_NAMES:
            names.append(case.id)

    def judged_by_themselves(
        self, definition: SuiteDefinition, *, strict: bool
    ) -> tuple[SuiteDefinition, list[str]]:
        """Return the suite in which models judge their answers if nothing else does; warnings.

        In strict mode the warning is raised.
        """
        unjudged = {named: _without_judge(named, definition) for named in self._counts}
        own = {
            target.name: replace(target, options={**target.options, "grader_target": target.name})
            for targets in unjudged.values()
            for target in targets
            if target is not None and target.kind in MODEL_KINDS
        }
        changed = replace(definition, targets={**definition.targets, **own})
        judged = [
            named
            for named, targets in unjudged.items()
            if targets and not _without_judge(named, changed)
        ]
        texts = [self._text(judged, _OWN_JUDGE)] if judged else []
        return changed, _unless_strict(texts, definition, strict=strict)

    def warnings(self, definition: SuiteDefinition, *, strict: bool) -> list[str]:
        """Return the warnings, none where each case has a judge; in strict mode raise them."""
        unjudged = [named for named in self._counts if _without_judge(named, definition)]
        texts = [self._text(unjudged, _BLOCKED)] if unjudged else []
        texts += (
            f"scorer '{scorer.name}' needs a judge and the suite has none, so nothing is measured: "
            f"name its `judge`, or {_INSTEAD}"
            for scorer in definition.scorers
            if scorer.kind == _JUDGED_SCORER
            and scorer.params.get("judge") is None
            and _without_judge(None, definition)
        )
        return _unless_strict(texts, definition, strict=strict)

    def _text(self, targets: Sequence[str | None], consequence: str) -> str:
        """Return the sentence about the cases of these targets."""
        count = sum(self._counts[name] for name in targets)
        ids = [case for name in targets for case in self._names[name]][:_MAX_JUDGE_NAMES]
        names = ", ".join(f"'{case}'" for case in ids) + (", …" if count > len(ids) else "")
        cases = f"case {names} needs" if count == 1 else f"{count} cases ({names}) need"
        return f"{cases} a judge and the suite has none, {consequence}"


def _unless_strict(texts: list[str], definition: SuiteDefinition, *, strict: bool) -> list[str]:
    if strict and texts:
        file = definition.source.path
        raise LoadError(tuple(Problem(file, None, "", text) for text in texts))
    return texts


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


def _without_judge(target: str | None, definition: SuiteDefinition) -> list[Target | None]:
    """Return what answers cases of this target of their own and has no judge, for each variant."""
    names = [target or each.target or definition.default_target for each in definition.variants]
    answering = [definition.targets.get(name or "") for name in names]
    return [each for each in answering if judge_name(None, each, definition) is None]


class ReferenceFields:
    """The fields that a suite's assertions compare; costs nothing where none does."""

    def __init__(self) -> None:
        self._missing: set[str] = set()
        self._present: set[str] = set()

    def compare(self, fields: Iterable[str]) -> None:
        """Note the fields of an assertion."""
        self._missing.update(path for path in fields if path not in self._present)

    def note(self, case: Case) -> None:
        """Note the fields that the case's expected output has."""
        if not self._missing:
            return
        from evalcore.checks.json import expected_object
        from evalcore.jsonvalues import ABSENT, value_at

        expected = expected_object(case.expected_output)
        present = {path for path in self._missing if value_at(expected, path) is not ABSENT}
        self._present |= present
        self._missing -= present

    def absent(self, cases: Iterable[Case]) -> tuple[str, ...]:
        """Return the fields that no case has, sorted; `cases` are those that were kept.

        They are looked through once more, because an assertion may stand after the case that has
        its field.
        """
        for case in cases if self._missing else ():
            self.note(case)
            if not self._missing:
                break
        return tuple(sorted(self._missing))


def examine_condition(
    condition: Condition, loc: Loc, problems: Problems, warnings: CaseWarnings
) -> None:
    """Note why the condition of the saved eval at `loc` cannot be applied; warn of the rest."""
    for fault in condition.faults():
        problems.add((*loc, "assertion", "condition", *fault.path), fault.message)
    if condition.kind not in ("starts_with", "ends_with") or condition.expected_value != "":
        return
    reason = f"'{condition.kind}' can never fail on any value: its text is empty"
    warnings.add(reason, (*loc, "assertion", "condition"), problems)


def note_empty(
    assertion: Assertion,
    loc: Loc,
    problems: Problems,
    label: str = "",
    warnings: CaseWarnings | None = None,
) -> None:
    """Note what is empty in the value of an assertion at `loc`, and makes it pass or fail always.

    With `warnings` it is a warning.
    """
    reason = _empty_reason(assertion)
    if reason is not None and warnings is None:
        problems.add((*loc, "value"), reason, label=label)
    elif reason is not None and warnings is not None:
        warnings.add(reason, (*loc, "value"), problems)


# The fields that hold the text which every output holds if it is empty.
_TEXT_FIELDS: Final = {
    "contains": "value",
    "starts-with": "value",
    "ends-with": "value",
    "output-contains": "value",
    "regex": "pattern",
    "output-matches": "pattern",
}


def _empty_reason(assertion: Assertion) -> str | None:
    """Return what is empty, and what always follows; None where nothing is."""
    params, passes = assertion.params, not assertion.negate
    if assertion.check in ("contains-any", "contains-all"):
        values, takes_all = params["values"], assertion.check == "contains-all"
        if values and "" not in values:
            return None
        reason = "has an empty member, which every output contains" if values else "is empty"
        if values and takes_all and set(values) != {""}:
            return reason
        passes = passes if values or takes_all else not passes
    else:
        key = _TEXT_FIELDS.get(assertion.check)
        written = "x" if key is None else params[key]
        if written.strip(ECMASCRIPT_TRIMMED) if params.get("trim") else written:
            return None
        reason = "is empty after trimming" if written else "is empty"
    return f"{reason}: '{assertion.type}' can never {'fail' if passes else 'pass'}"


def examine_assertion(
    assertion: Assertion,
    written: Mapping[str, Any],
    loc: Loc,
    problems: Problems,
) -> None:
    """Note why an assertion at `loc` cannot be applied to any output."""
    check = find_check(assertion.check)
    if check.faults is not Check.faults:
        for fault in check.from_stored(assertion.params).faults():
            problems.add((*loc, *_written_path(fault.path, written)), fault.message)
    if assertion.transform is not None:
        try:
            compile_transform(assertion.transform)
        except TransformError as error:
            problems.add((*loc, "transform"), str(error))


def _written_path(path: Loc, written: Mapping[str, Any]) -> Loc:
    """Return where a field's value stands: under its own name, in `config`, or as `value`."""
    field, config = path[0], written.get("config")
    if field in written or written.get("value") is None:
        return path
    in_config = isinstance(config, Mapping) and field in config
    return ("config", *path) if in_config else ("value", *path[1:])
