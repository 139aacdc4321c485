"""Files of labels: outputs and the verdicts of people on them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.errors import LoadError, Problem
from evalcore.formats.rows import NO_TEST
from evalcore.formats.sources import file_tests
from evalcore.model.evidence import NOTHING
from evalcore.model.scoring import reaches
from evalcore.problems import Problems, raise_all
from evalcore.wording import Loc, describe, value_text

_WORDS: Final = {
    **dict.fromkeys(("pass", "passed", "yes", "true", "good", "correct"), 1.0),
    **dict.fromkeys(("fail", "failed", "no", "false", "bad", "incorrect"), 0.0),
}


class Label(NamedTuple):
    """One output and the verdict of people on it; `judged` is a judge's if the file has one."""

    id: str
    human: bool
    output: str | None = None
    judged: bool | None = None
    input: Any = None
    expected_output: Any = None
    criteria: str | None = None
    metadata: Mapping[str, Any] = NOTHING


def read_labels(path: Path, threshold: float) -> list[Label]:
    """Return the labels of a file of tests (JSONL, CSV, Parquet, YAML) with a field `label`.

    A label is true or false, pass or fail, yes or no, or a score that passes from `threshold` on.
    A row needs an `output`, or a judge's verdict as `judge`. Raise `LoadError` with every mistake.
    """
    name = str(path)
    suite = Problems(name, lambda _: None)
    collectors: dict[int, Problems] = {id(suite): suite}
    labels: dict[str, Label] = {}
    for value, loc, problems, *_ in file_tests(path, name, {}, suite):
        collectors[id(problems)] = problems
        if value is NO_TEST:
            continue
        if not isinstance(value, dict):
            problems.add(loc, f"a label is a mapping, got {describe(value)}")
            continue
        label = _label(value, f"label-{len(labels) + 1}", threshold, loc, problems)
        if label is not None and labels.setdefault(label.id, label) is not label:
            problems.add(loc, f"two labels have the id '{label.id}'")
    raise_all(tuple(collectors.values()))
    if not labels:
        raise LoadError((Problem(name, None, "", "holds no label"),))
    return list(labels.values())


def _label(
    raw: dict[str, Any], default_id: str, threshold: float, loc: Loc, problems: Problems
) -> Label | None:
    before = problems.count
    # A column that no test has is metadata.
    metadata = dict(raw.get("metadata") or {})
    written = {key: metadata.pop(key, raw.get(key)) for key in ("label", "judge")}
    verdicts = {
        key: _passes(value, threshold, (*loc, key), problems)
        for key, value in written.items()
        if value is not None
    }
    fixture = raw.get("fixtures")
    output = fixture.get("output") if isinstance(fixture, Mapping) else raw.get("output")
    if "label" not in verdicts:
        problems.add(loc, "has no 'label': what people said, pass or fail")
    elif output is None and "judge" not in verdicts:
        problems.add(loc, "has no 'output' that a judge could be asked about, and no 'judge'")
    if problems.count > before:
        return None
    return Label(
        id=str(raw.get("id") or default_id),
        human=verdicts["label"],
        output=None if output is None else str(output),
        judged=verdicts.get("judge"),
        input=raw.get("input"),
        expected_output=raw.get("expected_output"),
        criteria=raw.get("criteria"),
        metadata=metadata or NOTHING,
    )


def _passes(value: Any, threshold: float, loc: Loc, problems: Problems) -> bool:
    """Return whether a verdict is one of passing; note what is none."""
    word = value_text(value).strip().lower()
    with suppress(ValueError):
        score = _WORDS[word] if word in _WORDS else float(word)
        if 0 <= score <= 1:
            return score == 1 if word in _WORDS else reaches(score, threshold)
    problems.add(loc, f"is pass or fail, or a score from 0 to 1, not {describe(value)}")
    return False
