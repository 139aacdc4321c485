"""`--case`, `--tag`, `--exclude-tag`, `--variant`: what they keep, and what meets nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.formats.loading import load_text, usage_error_of

TESTS = """\
targets: [{name: judge, provider: echo}]
tests:
  - {id: refund, input: a, tags: [money, slow], criteria: c, fixtures: {output: x}}
  - {id: delivery, input: a, tags: [slow], criteria: c, fixtures: {output: x}}
  - {id: greeting, input: a, criteria: c, fixtures: {output: x}}
"""
VARIANTS = "evalcore: {variants: [{id: base}, {id: big}, {id: small}], baseline: base}\n"


def of(**names: list[str]) -> dict[str, Any]:
    return {name: frozenset(values) for name, values in names.items()}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (of(), ["refund", "delivery", "greeting"]),
        (of(cases=["greeting", "refund"]), ["refund", "greeting"]),
        (of(tags=["slow"]), ["refund", "delivery"]),
        (of(tags=["money", "slow"]), ["refund", "delivery"]),
        (of(excluded_tags=["money"]), ["delivery", "greeting"]),
        (of(tags=["slow"], excluded_tags=["money"]), ["delivery"]),
        (of(cases=["refund", "delivery"], tags=["money"]), ["refund"]),
    ],
    ids=None,
)
def test_filters_keep_the_order_of_the_file(
    tmp_path: Path, options: dict[str, Any], kept: list[str]
) -> None:
    assert [case.id for case in load_text(tmp_path, TESTS, **options).cases] == kept


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (of(cases=["refnd"]), "--case: no case has the id 'refnd'. Did you mean 'refund'?"),
        (of(tags=["slwo"]), "--tag: no case has the tag 'slwo'. Did you mean 'slow'?"),
        (
            of(cases=["refund"], excluded_tags=["money"]),
            "the filters leave no case: --case refund, --exclude-tag money",
        ),
        (of(variants=["bse"]), "--variant: no variant is called 'bse'. Did you mean 'base'?"),
        (
            of(variants=["x", "base"]),
            "--variant: no variant is called 'x'. Known: base, big, small.",
        ),
    ],
    ids=None,
)
def test_filters_that_leave_nothing_are_usage_errors(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    assert usage_error_of(tmp_path, VARIANTS + TESTS, **options) == f"suite.eval.yaml: {message}"


def test_a_filter_that_meets_nothing_beside_others_is_a_warning(tmp_path: Path) -> None:
    options = of(cases=["refund", "delivry"])
    message = "--case: no case has the id 'delivry'. Did you mean 'delivery'?"

    assert load_text(tmp_path, TESTS, **options).warnings == (message,)
    assert usage_error_of(tmp_path, TESTS, strict=True, **options).endswith(message)


@pytest.mark.parametrize(
    ("chosen", "kept", "baseline"),
    [
        ([], ["base", "big", "small"], "base"),
        (["small", "base"], ["base", "small"], "base"),
        (["small"], ["small"], None),
    ],
)
def test_variants_are_kept_in_the_suites_order(
    tmp_path: Path, chosen: list[str], kept: list[str], baseline: str | None
) -> None:
    definition = load_text(tmp_path, VARIANTS + TESTS, **of(variants=chosen)).definition

    assert [variant.id for variant in definition.variants] == kept
    assert definition.baseline == baseline
