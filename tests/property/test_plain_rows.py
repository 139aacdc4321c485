"""Law: plain rows come to the cases of the whole way (formats/test_file/plain_rows.py)."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.errors import LoadError
from evalcore.formats.test_file.plain_rows import PlainRows
from evalcore.model.suite import Case
from evalcore.pipeline.plan import load
from tests.support.examples import examples

WORDS = ("a", "Blau", "ß", "😀", "{{ input }}", "${{ NAME }}", "a\u2028b", " ", "")
texts = st.sampled_from(WORDS)
odd = st.sampled_from([None, 1, True, [], {}, ["a"], {"output": "a"}, [{"role": "user"}]])
assertions = st.one_of(
    st.builds(
        lambda kind, value: {"type": kind, "value": value},
        st.sampled_from(
            ["contains", "icontains", "starts_with", "equals", "regex", "is-json", "latency"]
        )
        | texts,
        texts | odd,
    ),
    st.sampled_from(
        [
            {"type": "is-json"},
            {"type": "is_json"},
            {"value": "a", "type": "contains"},
            {"type": "contains", "value": "a", "negate": True},
            {"type": "contains", "value": "a", "name": "own"},
            {"type": "contains", "value": "a", "required": True},
            {"type": "contains", "value": "a", "required": 1},
            {"type": "llm-grader", "prompt": "is it right?"},
            {"type": "code-grader", "command": "x"},
            {"type": "latency", "threshold": 10},
            {"include": "x"},
            "contains",
            "is polite",
            None,
            3,
        ]
    ),
)
compared = st.builds(
    lambda kind, value: {"type": kind, "value": value},
    st.sampled_from(["contains", "icontains", "equals", "ends-with"]),
    st.sampled_from(["a", "Blau", "b"]),
) | st.just({"type": "is-json"})
rows = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["a", "b", "c", "d", "é"]) | odd,
        "input": texts | odd,
        "fixtures": st.fixed_dictionaries(
            {"output": texts}, optional={"metrics": st.just({"latency_ms": 1})}
        )
        | odd,
        "assertions": st.lists(assertions, max_size=4) | odd,
    },
    optional={
        "expected_output": texts | odd,
        "tags": st.lists(texts, max_size=2) | odd,
        "metadata": st.just({"n": 1}) | odd,
        "criteria": st.just("is right"),
        "assert": st.lists(assertions, max_size=1),
        "execution": st.just({"threshold": 0.5}),
    },
)
sound_rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 50).map(str),
        "input": texts,
        "fixtures": st.fixed_dictionaries({"output": texts}),
        "assertions": st.lists(compared, min_size=1, max_size=4)
        | st.lists(assertions, min_size=1, max_size=4),
    },
    optional={"tags": st.lists(texts, max_size=2), "expected_output": texts | odd},
)
suites = st.sampled_from(
    [
        "",
        "execution: {threshold: 0.5}",
        "tags: [x]",
        "assertions: [{type: is-json}]",
        "input: [{role: system, content: be kind}]",
        "metadata: {m: 1}",
        "execution: {conversation: true}",
        "evalcore: {name: n, strict: false}",
    ]
)


def loaded(path: Path) -> tuple[list[Case], tuple[str, ...]] | str:
    """Return the cases and warnings of a file, or its mistakes."""
    try:
        suite = load(path)
    except LoadError as error:
        return str(error)
    return list(suite.cases), suite.warnings


@examples(30)
@given(st.lists(rows | sound_rows, min_size=1, max_size=6), suites)
def test_plain_rows_are_read_as_the_whole_way_reads_them(
    cases: list[dict[str, Any]], suite: str
) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        path = Path(name) / "cases.jsonl"
        path.write_text("".join(f"{json.dumps(case)}\n" for case in cases))
        if suite:
            (Path(name) / "cases.yaml").write_text(f"{suite}\n")
        short = loaded(path)
        patch.setattr(PlainRows, "read", lambda *_: None)
        assert short == loaded(path)


PLAIN: dict[str, Any] = {
    "id": "a",
    "input": "x",
    "fixtures": {"output": "Blue"},
    "assertions": [{"type": "contains", "value": "Blue"}, {"type": "is-json"}],
}


@pytest.mark.parametrize(
    ("more", "is_plain"),
    [
        ({}, True),
        ({"tags": ["a"], "metadata": {"n": 1}, "expected_output": {"r": 1}}, True),
        ({"criteria": "is right"}, False),
        ({"expected_output": [{"role": "user", "content": "a"}]}, False),
        ({"input": "${{ HOME }}"}, True),
        ({"fixtures": {"output": "Blue", "metrics": {"latency_ms": 1}}}, False),
        ({"assertions": [{"type": "llm-grader", "prompt": "a"}]}, False),
    ],
    ids=str,
)
def test_which_rows_are_plain(
    more: dict[str, Any], is_plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    read = PlainRows.read

    def noting(rows: PlainRows, row: Any, problems: Any) -> Case | None:
        case = read(rows, row, problems)
        taken.append(case is not None)
        return case

    monkeypatch.setattr(PlainRows, "read", noting)
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(f"{json.dumps({**PLAIN, 'id': i, **more})}\n" for i in ("a", "b")))
    loaded(path)
    assert taken == [is_plain, is_plain]
