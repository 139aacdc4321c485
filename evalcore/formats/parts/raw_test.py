"""One test as its file has it, not validated yet."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems

NO_TEST: Final = object()
# The names of the key that holds the tests, and the files that are nothing but tests.
TESTS_KEYS: Final = ("tests", "eval_cases", "evalcases")
ROW_SUFFIXES: Final = frozenset({".jsonl", ".csv", ".parquet"})


class RawTest(NamedTuple):
    """A test, where it stands, and the collector of its mistakes.

    `marked` says whether `${{ … }}` in its text is a reference, `is_data` whether it is a row of
    data, whose text is never one and which may add nothing that runs. The value `NO_TEST` only
    hands over a collector, so that a file with mistakes and without any test is reported.
    """

    value: Any
    loc: Loc
    problems: Problems
    marked: bool = True
    is_data: bool = False
