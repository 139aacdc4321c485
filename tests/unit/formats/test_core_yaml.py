"""YAML is read as PyYAML reads it with the core schema of YAML 1.2, or refused."""

from __future__ import annotations

import math
import random
import re
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evalcore.errors import LoadError
from evalcore.formats.documents import parse_document

SCALARS = (
    *("a", "yes", "12:30", "2024-01-01", "true", "False", "tRUE", "~", "null", "nULL", "''"),
    *("0", "-1", "+7", "007", "0o17", "0x1F", "0b1", "1_000", "18446744073709551615"),
    *("1.5", "1.", ".5", "-.5e3", "1e5", "1e", "5.e-1", "+", "-", ".", "1.2.3", "0x", "1e400"),
    *(".inf", "-.Inf", ".NaN", "nan", "18446744073709551616", "9" * 5000, "<<", "<", "=", "!x a"),
    *('"12"', "'true'", '"\\u00e9"', "&a 1", "*a", "!!int '3'", "! x", "| \n  a", "é", "a: b"),
)


class Reference(yaml.CSafeLoader):
    """PyYAML with the core schema; what JSON does not hold is a `ValueError`."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        written = [self.construct_object(key, deep=True) for key in keys]
        if len({*written}) < len(written):
            raise ValueError("duplicate key")
        return super().construct_mapping(node, deep)

    def core_int(self, node: yaml.ScalarNode) -> int:
        bases = {"0o": 8, "0x": 16}
        number = int(node.value, bases.get(node.value[:2], 10))
        if not -(2**63) <= number < 2**64:
            raise ValueError("more than 64 bits")
        return number

    def core_float(self, node: yaml.ScalarNode) -> float:
        number = float(node.value)
        if not math.isfinite(number):
            raise ValueError("infinite")
        is_whole = "e" in node.value.lower() and number.is_integer() and abs(number) <= 2**53
        return int(number) if is_whole else number


for tag, pattern, firsts in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
    ("null", r"^(?:~|null|Null|NULL|)$", ("~", "n", "N", "")),
    ("merge", r"^(?:<<)$", "<"),
):
    Reference.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(firsts))
Reference.add_constructor("tag:yaml.org,2002:merge", lambda _, node: node.value)
Reference.add_constructor("tag:yaml.org,2002:int", Reference.core_int)
Reference.add_constructor("tag:yaml.org,2002:float", Reference.core_float)


def compare(text: str) -> None:
    """Both read the text, and as the same value, or both refuse it."""
    try:
        expected = repr(yaml.load(text, Loader=Reference))
    except (yaml.YAMLError, ValueError, TypeError):
        expected = "refused"
    try:
        found = repr(parse_document(text.encode(), "file").value)
    except LoadError:
        found = "refused"
    assert found == expected


@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("form", ["{}", "- {}", "k: {}", "{}: k", "[{}, 1]", "{{a: {}, b: 2}}"])
def test_a_scalar_means_the_same(scalar: str, form: str) -> None:
    compare(form.format(scalar))


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: [2, {c: 3.5, d: null}]\n",
        "- x\n-\n- 'y'\n- - z\n",
        "---\na: b\n...\n",
        "? a\n: b\n",
        "%YAML 1.2\n---\n[]",
        "a: |\n  two\n  lines\nb: >-\n  folded\n  text\n",
        "2: a\ntrue: b\nnull: c\n",
        "a: R&D & more\nb: wow! really ! so\nc: 1 << 3\n",
        "a: &x 1\nb: *x\n*x : c\n",
        "a: &x {b: 1}\nc: {<<: *x, d: 2, b: 3}\n",
        "a: &x {b: 1}\nc: &y {b: 2, e: 3}\nd: {f: 1, <<: [*x, *y], <<: {g: 1}}\n",
        "a: {<<: 1}\n",
        "a: {<<: [1]}\n",
        "a: &x {b: &x 1}\n",
        "a: !!str 1\nb: !!float 1\nc: !!int '1'\nd: !!null x\n",
        "a: !!map {b: 1}\nc: !!seq [1]\n",
        "a: 1\na: 2\n",
        "1: a\n1.0: b\n",
        "? [a]\n: b\n",
        "? {a: b}\n: c\n",
        "a: 1\n--- \nb: 2\n",
        "a: [1\n",
        "a: \x01\n",
        "&a [1]",
        "*a",
    ],
)
def test_a_document_means_the_same(text: str) -> None:
    compare(text)


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
@settings(max_examples=200, deadline=None)
def test_any_document_is_read_as_pyyaml_reads_it(document: Any, flow: bool) -> None:
    text = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    # PyYAML takes YAML 1.1's line breaks in texts for line breaks (test_line_separators).
    assume(not any(each in text for each in "\x85\u2028\u2029"))
    compare(text)


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_any_words_of_yaml_are_read_as_pyyaml_reads_them(seed: int) -> None:
    chosen = random.Random(seed)
    glue = ("\n", "\n  ", ": ", "- ", ", ", "[", "]", "{", "}", " ", " #", "\n    ")
    words = [chosen.choice(SCALARS[:60] + glue + glue) for _ in range(chosen.randint(1, 12))]
    text = "".join(words)
    assume(text.strip())
    compare(text)
