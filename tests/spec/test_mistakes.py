"""What the command line says of typical mistakes: the pages of tests/spec/mistakes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.mistake_pages import Mistake, make, read_mistakes

MISTAKES = list(read_mistakes())
# Words of pydantic, of parsers and of Python that mean nothing to the author of a suite.
JARGON = re.compile(
    r"Traceback|internal error|pydantic|Input should|Field required|Extra inputs|Error:"
    r"|<text>|<mapping>|union|dict\b|NoneType|None\b|constrained|scalar|sequence node|\bEOF\b"
)
CLICK = re.compile(r"\AUsage: evalcore .*\nTry 'evalcore .*--help' for help\.\n\nError: ")


@pytest.mark.parametrize(
    "mistake", MISTAKES, ids=[f"{mistake.page}: {mistake.title}" for mistake in MISTAKES]
)
def test_a_mistake_is_told_in_these_words(mistake: Mistake, tmp_path: Path) -> None:
    answer = make(mistake, tmp_path)

    assert answer.err == mistake.printed
    assert (answer.exit_code, answer.out) == (2, "")


def test_messages_use_no_words_of_libraries() -> None:
    told = {mistake.title: CLICK.sub("", mistake.printed) for mistake in MISTAKES}

    assert {title: text for title, text in told.items() if JARGON.search(text)} == {}


def test_no_mistake_is_told_twice() -> None:
    for mistake in MISTAKES:
        places = Counter(
            re.sub(r": (test '\w*': )?(unknown|expected|must|is) .*", "", line)
            for line in mistake.printed.splitlines()
            if re.match(r"\S+:\d+: \S+: ", line)
        )
        assert [place for place, count in places.items() if count > 1] == [], mistake.title


def test_mistakes_of_a_file_are_told_in_the_order_of_its_lines() -> None:
    for mistake in MISTAKES:
        lines: dict[str, list[int]] = {}
        for file, line in re.findall(r"^(\S+?):(\d+): ", mistake.printed, re.MULTILINE):
            lines.setdefault(file, []).append(int(line))
        assert all(found == sorted(found) for found in lines.values()), mistake.title


def test_every_mistake_of_a_page_has_a_heading_of_its_own() -> None:
    titles = Counter((mistake.page, mistake.title) for mistake in MISTAKES)

    assert [title for title, count in titles.items() if count > 1] == []
    assert len(titles) >= 40
