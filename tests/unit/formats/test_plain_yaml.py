"""The one-pass reader gives what PyYAML gives, or nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcore.formats.documents import (
    MAX_DEPTH,
    CoreLoader,
    NotPlainError,
    RefusedError,
    read_plain_yaml,
)

SCALARS = (
    *("a", "yes", "12:30", "2024-01-01", "true", "False", "tRUE", "~", "null", "nULL", "''"),
    *("0", "-1", "+7", "007", "0o17", "0x1F", "0b1", "1_000", "18446744073709551615"),
    *("1.5", "1.", ".5", "-.5e3", "1e5", "1e", "5.e-1", "+", "-", ".", "1.2.3", "0x", "1e400"),
    *(".inf", "-.Inf", ".NaN", "nan", "18446744073709551616", "9" * 5000, "<<", "<", "=", "!x a"),
    *('"12"', "'true'", '"\\u00e9"', "&a 1", "*a", "!!int '3'", "! x", "| \n  a", "é", "a: b"),
)


def read_both(text: str) -> tuple[Any, Any] | None:
    """Return both values; None if the text is not plain."""
    try:
        found = read_plain_yaml(text)
    except NotPlainError:
        return None
    return found, yaml.load(text, Loader=CoreLoader)


@pytest.mark.parametrize("form", ["{}", "- {}", "k: {}", "{}: k", "[{}, 1]", "{{a: {}, b: 2}}"])
def test_a_scalar_means_the_same(form: str) -> None:
    for scalar in SCALARS:
        try:
            read = read_both(form.format(scalar))
        except (yaml.YAMLError, RefusedError) as error:
            pytest.fail(f"{scalar!r} is taken for plain: {error}")
        if read is not None:
            assert repr(read[0]) == repr(read[1])


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: [2, {c: 3.5, d: null}]\n",
        "- x\n-\n- 'y'\n- - z\n",
        "# only\n",
        "---\na: b\n...\n",
        "? a\n: b\n",
        "%YAML 1.2\n---\n[]",
        "a: |\n  two\n  lines\nb: >-\n  folded\n  text\n",
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        "2: a\ntrue: b\nnull: c\n",
        "a: R&D & more\nb: wow! really ! so\nc: 1 << 3\n",
    ],
)
def test_plain_texts_are_read(text: str) -> None:
    read = read_both(text)
    assert read is not None
    assert repr(read[0]) == repr(read[1])


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x\n",
        "a: {<<: {b: 1}}\n",
        "a: !!str 1\n",
        "a: 1\na: 2\n",
        "1: a\n1.0: b\n",
        "? [a]\n: b\n",
        "? {a: b}\n: c\n",
        "a: 1\n--- \nb: 2\n",
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "a: .inf\n",
        "a: 18446744073709551616\n",
        "a: [1\n",
        "a: \x01\n",
        "&a [1]",
    ],
)
def test_the_rest_is_left_to_pyyaml(text: str) -> None:
    with pytest.raises(NotPlainError):
        read_plain_yaml(text)


DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)


@given(DOCUMENTS, st.booleans())
@settings(max_examples=100, deadline=None)
def test_any_document_is_read_as_pyyaml_reads_it(document: Any, flow: bool) -> None:
    text = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    read = read_both(text)
    # PyYAML writes values that stand in it twice with anchors.
    assert read is None or repr(read[0]) == repr(read[1])


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_any_words_of_yaml_are_read_as_pyyaml_reads_them(seed: int) -> None:
    chosen = random.Random(seed)
    glue = ("\n", "\n  ", ": ", "- ", ", ", "[", "]", "{", "}", " ", " #", "\n    ")
    words = [chosen.choice(SCALARS[:60] + glue + glue) for _ in range(chosen.randint(1, 12))]
    text = "".join(words)
    try:
        read = read_both(text)
    except (yaml.YAMLError, RefusedError) as error:
        pytest.fail(f"{text!r} was taken for plain: {error}")
    if read is not None:
        assert repr(read[0]) == repr(read[1])
