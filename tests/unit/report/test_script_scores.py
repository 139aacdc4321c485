"""The scores of script suites as YAML."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcore.report.script_scores import as_yaml

WORDS = st.sampled_from(["y", "No", "on", "TRUE", "null", "~", "a", "a-", "_", "e1", "1e3", "x: y"])


@given(
    st.recursive(
        st.floats(0, 1) | st.sampled_from([0.0, 1.0, 1e-7, None, 3]),
        lambda inner: st.dictionaries(WORDS | st.text("abzAZ_-09 .#", max_size=6), inner),
        max_leaves=12,
    ).filter(lambda found: isinstance(found, dict))
)
@settings(max_examples=100, deadline=None)
def test_what_is_written_here_is_what_pyyaml_writes(document: dict[str, Any]) -> None:
    assert as_yaml(document) == yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False)


def test_thousands_of_scores_are_written_as_pyyaml_writes_them() -> None:
    tests = {f"test_{number}": number / 5_000 for number in range(1, 5_000)}
    document = {"final_score": 0.5, "per_suite": {"s": {"final_score": 0.5, "per_test": tests}}}

    assert as_yaml(document) == yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False)
