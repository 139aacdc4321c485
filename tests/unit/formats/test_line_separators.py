"""Characters that are line breaks to YAML 1.1 alone stay in texts, wherever these stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.formats.documents import parse_document
from tests.unit.formats.loading import places_of, problems_of

SEPARATORS = ["\x85", "\u2028", "\u2029"]
FORMS = {
    "in double quotes": '"a {} b"',
    "in single quotes": "'a {} b'",
    "plain": "a {} b",
    "literal": "|-\n  a {} b",
    "folded": ">-\n  a {} b",
    "before a comment": "a {} b # {}",
}


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_separator_is_a_character_of_its_text(form: str, separator: str) -> None:
    text = f"# {separator}\nkey: {form.replace('{}', separator)}\n"

    assert parse_document(text.encode(), "a.yaml").value == {"key": f"a {separator} b"}


def test_separators_stay_in_keys_lists_and_beside_their_escapes() -> None:
    text = 'a\u2028b: [{c: ["\\L\u2028\\N", "\\ue000\ue001"]}]\n'

    assert parse_document(text.encode(), "a.yaml").value == {
        "a\u2028b": [{"c": ["\u2028\u2028\x85", "\ue000\ue001"]}]
    }


def test_json_under_another_name_has_its_separators() -> None:
    text = '{"a": "\u2028\\ud800\\udc00",\n "b": "/*"}'

    assert parse_document(text.encode(), "a.yaml").value == {"a": "\u2028\U00010000", "b": "/*"}


def test_separators_do_not_count_as_lines(tmp_path: Path) -> None:
    text = "# a\u2028b\ntests:\n  - {id: a, input: 'x\u2029y', criteria: c, fixturs: {output: z}}\n"

    assert (3, "tests[0].fixturs") in places_of(problems_of(tmp_path, text))
