"""Ids that stand twice in a suite."""

from __future__ import annotations

from evalcore.formats.section import UniqueIds
from evalcore.problems import Problems
from evalcore.wording import Loc


def problems_in(file: str, line: int, *, cheap: bool = False) -> Problems:
    def locate(loc: Loc) -> int:
        return line + len(loc)

    return Problems(file, locate, cheap=cheap)


def test_a_second_id_is_noted_with_the_line_of_the_first() -> None:
    ids, problems = UniqueIds("duplicate case '{}'"), problems_in("a.yaml", 10)

    for index in range(3):
        ids.note("same", ("cases", index), problems)

    messages = [problem.message for problem in problems.noted]
    assert messages == ["duplicate case 'same' (first at line 13)"] * 2
    assert [problem.path for problem in problems.noted] == ["cases[1].id", "cases[2].id"]


def test_an_id_of_another_file_is_named_with_that_file() -> None:
    ids = UniqueIds("duplicate case '{}'")
    first, second = problems_in("a.jsonl", 4, cheap=True), problems_in("b.jsonl", 7, cheap=True)
    ids.note("one", (), first)
    ids.note("two", (), second)

    ids.note("one", (), second)
    ids.note("two", (), first)

    assert second.noted[0].message == "duplicate case 'one' (first at line 4 of a.jsonl)"
    assert first.noted[0].message == "duplicate case 'two' (first at line 7 of b.jsonl)"


def test_what_is_no_id_is_not_remembered() -> None:
    ids, problems = UniqueIds("duplicate case '{}'"), problems_in("a.yaml", 1)

    for value in (None, "", 3, None, ""):
        ids.note(value, ("cases",), problems)

    assert not problems.count
    assert list(ids.names) == []
