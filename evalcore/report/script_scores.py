"""The scores of a script suite's run as YAML, in exactly the shape that its format promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import fsum
from typing import Any, Final

from evalcore.model.scoring import ModelTokens, Note, ScriptScores, TestDetail, TestScore
from evalcore.statistics.intervals import Moments, mean_interval, plain_moments, t_interval
from evalcore.wording import plural, shorten

NO_TESTS: Final = "(no tests)"
_MOST_LISTED: Final = 40


def scores_document(scores: ScriptScores) -> dict[str, Any]:
    """Return the document: `final_score` and `per_suite`; of a flat file `mean_score`,
    `CI_95` and `tests`.

    With more than one variant, the same for each of them under `per_variant`.
    """
    flat = any(_is_flat(test) for test in scores.tests)
    make = _flat if flat else _nested
    documents = {variant: make(scores, variant, final) for variant, final in scores.finals}
    if len(documents) == 1:
        return next(iter(documents.values()))
    return {"per_variant": documents}


def _is_flat(test: TestScore) -> bool:
    return test.group is None and (not test.placeholder or test.case == NO_TESTS)


def _nested(scores: ScriptScores, variant: str, final: float | None) -> dict[str, Any]:
    per_suite: dict[str, Any] = {}
    for group in scores.groups:
        if group.variant == variant and group.group is not None:
            per_suite[group.group] = {"final_score": group.score, "per_test": {}}
    for index, test in enumerate(scores.tests):
        if test.variant != variant or test.placeholder or test.group is None:
            continue
        # The suite's name has no slash in a case's id.
        suite, name = per_suite[test.group], test.case.partition("/")[2]
        suite["per_test"][name] = test.score
        if scores.details is not None:
            suite.setdefault("details", {})[name] = _detail(scores.details[index], test.score)
    return {"final_score": 0.0 if final is None else final, "per_suite": per_suite}


def _detail(detail: TestDetail, score: float | None) -> dict[str, Any]:
    document: dict[str, Any] = {"scores": list(detail.scores)}
    moments = _moments(detail, score)
    if moments is None:
        document |= {"standard_error": None, "confidence_95": None}
    else:
        interval = mean_interval(moments)
        document["standard_error"] = moments.standard_error
        document["confidence_95"] = [interval.low, interval.high]
    numbered = zip(detail.iterations, detail.errors, strict=True)
    if errors := {number: error for number, error in numbered if error is not None}:
        document["errors"] = errors
    return document


def _moments(detail: TestDetail, score: float | None) -> Moments | None:
    measured = sum(value is not None for value in detail.scores)
    if detail.square_sum is None or score is None:
        return None
    return plain_moments(measured, score, detail.square_sum)


def _flat(scores: ScriptScores, variant: str, final: float | None) -> dict[str, Any]:
    """Return the shape of the program that has no suites."""
    document: dict[str, Any] = {"mean_score": 0.0 if final is None else final}
    indices = [
        index
        for index, test in enumerate(scores.tests)
        if test.variant == variant and not test.placeholder
    ]
    details = [] if scores.details is None else [scores.details[index] for index in indices]
    document |= _interval(_iteration_moments(details))
    if scores.tokens:
        document["usage"] = {
            "total_tokens": sum(usage.total for usage in scores.tokens),
            "per_model": {
                each.model: {
                    "total": each.total,
                    "in": each.input_tokens,
                    "out": each.output_tokens,
                }
                for each in scores.tokens
            },
        }
    tests = [scores.tests[index] for index in indices]
    document["tests"] = {test.case: {"mean_score": test.score} for test in tests}
    for test, detail in zip(tests, details, strict=bool(details)):
        document["tests"][test.case] |= _flat_detail(detail, test.score)
    return document


def _flat_detail(detail: TestDetail, score: float | None) -> dict[str, Any]:
    """Return what the program says of each test; its iterations are keys of JSON, texts."""
    numbers = [str(iteration) for iteration in detail.iterations]
    document = _interval(_moments(detail, score))
    document["scores"] = dict(zip(numbers, detail.scores, strict=True))
    numbered = zip(numbers, detail.errors, strict=True)
    if errors := {number: error for number, error in numbered if error is not None}:
        document["errors"] = errors
    return document


def _iteration_moments(details: list[TestDetail]) -> Moments | None:
    """Return the moments of the means that the tests have in each iteration; None for one."""
    by_iteration: dict[int, list[float]] = {}
    for detail in details:
        for iteration, score in zip(detail.iterations, detail.scores, strict=True):
            if score is not None:
                by_iteration.setdefault(iteration, []).append(score)
    means = [fsum(each) / len(each) for each in by_iteration.values() if len(each) == len(details)]
    if not means:
        return None
    mean = fsum(means) / len(means)
    return plain_moments(len(means), mean, fsum((each - mean) ** 2 for each in means))


def _interval(moments: Moments | None) -> dict[str, Any]:
    """Return the entry of Student's interval, not clipped; nothing where there is none."""
    if moments is None:
        return {}
    interval = t_interval(moments)
    return {"CI_95": {"min": interval.low, "max": interval.high}}


def as_yaml(document: Mapping[str, Any]) -> str:
    """Return the document as YAML, its keys in their order."""
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    style: Any = {"sort_keys": False, "allow_unicode": True, "default_flow_style": False}
    return str(yaml.dump(document, Dumper=dumper, width=2**20, **style))


def token_lines(tokens: tuple[ModelTokens, ...]) -> Iterator[str]:
    """Yield the lines on tokens; none if none were used."""
    if not tokens:
        return
    yield f"Total Session Tokens: {sum(usage.total for usage in tokens):,} total"
    yield "Per-Model:"
    for usage in tokens:
        sides = f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"
        yield f"  {usage.model}: {usage.total:,} ({sides})"


def note_lines(notes: tuple[Note, ...], *, variants: bool, iterations: bool) -> Iterator[str]:
    """Yield a line for each error and warning of a test.

    `variants` and `iterations` say that there are several.
    """
    for note in notes:
        kind = "Error" if note.is_error else "Warning"
        variant = f" [{note.variant}]" if variants else ""
        listed = shorten(", ".join(map(str, note.iterations)), _MOST_LISTED)
        repeated = f" ({plural(len(note.iterations), 'iteration')} {listed})" if iterations else ""
        yield f"{kind}: {note.case}{variant}{repeated}: {note.message}"
