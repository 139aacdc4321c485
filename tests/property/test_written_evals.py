"""A file of saved evals that was written reads as the same evals, in YAML and in JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalcore.formats.saved_evals import (
    FileEval,
    eval_fields,
    file_of,
    read_saved_evals,
    saved_evals_text,
)
from tests.support.service import WORKFLOW

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        [
            "",
            "yes",
            "0o14",
            "1e5",
            "null",
            "~",
            "- a",
            "a: b",
            "#",
            "2026-11-22",
            "\u0085",
            "\ufeff",
        ]
    ),
    st.text("\n\t \r'\"|>: ab", max_size=12),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
NAMES = st.one_of(st.none(), TEXTS.filter(bool))


@st.composite
def saved_evals(draw: st.DrawFn) -> list[FileEval]:
    """Return evals with ids of their own, and names that may be the same."""
    return [
        FileEval.model_validate(
            {
                "id": f"wfnodeeval_{number}",
                "name": draw(NAMES),
                "target": {"type": "block", "block_id": "extract"},
                "source": {
                    "type": "manual",
                    "handle_inputs": {"input-json-0": {"type": "json", "data": draw(VALUES)}},
                },
                "assertion": {
                    "id": f"assert_{number}",
                    "target": {"output_handle_id": "output-json-0", "path": "total"},
                    "condition": {"kind": "equals", "expected": draw(VALUES)},
                    "label": draw(st.none() | TEXTS),
                },
            }
        )
        for number in range(draw(st.integers(0, 3)))
    ]


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@given(evals=saved_evals(), name=TEXTS.filter(bool))
@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_written_file_reads_as_the_same_evals(
    suffix: str, evals: list[FileEval], name: str, tmp_path: Path
) -> None:
    content = file_of(name, WORKFLOW, evals)
    path = tmp_path / f"evals.{suffix}"
    path.write_text(saved_evals_text(content, as_json=suffix == "json"), "utf-8", newline="")
    read = read_saved_evals(path)
    assert read.name == name
    assert repr(read.workflow) == repr(WORKFLOW)
    assert repr([*map(eval_fields, read.evals)]) == repr(content["evals"])
    names = [saved.name or saved.id for saved in read.evals]
    assert len(set(names)) == len(evals)
