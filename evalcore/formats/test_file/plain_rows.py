"""Rows of data that have a given output and texts to compare it with, in a third of the time.

Most rows of large files are so. A case that `PlainRows` returns is the one that `TestReader` would
make of the row, and it takes no row of which there is anything to say.
"""

from __future__ import annotations

from typing import Any, Final

from evalcore.formats.test_file.cases import SuiteDefaults, TestReader
from evalcore.model.evidence import NOTHING, UNMEASURED, Evidence
from evalcore.model.suite import Case
from evalcore.problems import Problems

_KEYS: Final = frozenset({"assertions", "fixtures", "id", "input"})
_MORE_KEYS: Final = _KEYS | {"expected_output", "metadata", "tags"}
_OUTPUT_ALONE: Final = frozenset({"output"})

_new_case: Final = Case._make
_new_evidence: Final = Evidence._make


class PlainRows:
    """Reads the plain rows of a suite, whose ids are none of those that `tests` has read.

    No row is plain where the suite gives its tests anything but a threshold.
    """

    def __init__(self, tests: TestReader) -> None:
        self._ids = tests.ids
        self._compared = tests.assertions.compared
        self._threshold = tests.defaults.threshold
        self._is_active = _give_nothing(tests.defaults)

    def read(self, row: Any, problems: Problems) -> Case | None:
        """Return the case of a plain row; None, with nothing noted, of others.

        `problems` is the collector of the row's file.
        """
        if not self._is_active or type(row) is not dict:
            return None
        more: tuple[Any, ...] | None = _NOTHING_MORE if row.keys() == _KEYS else _more(row)
        if more is None:
            return None
        id_, input_, fixture = row["id"], row["input"], row["fixtures"]
        if type(id_) is not str or not id_ or type(input_) is not str or id_ in self._ids.names:
            return None
        if type(fixture) is not dict or fixture.keys() != _OUTPUT_ALONE:
            return None
        output, assertions = fixture["output"], self._compared(row["assertions"])
        if type(output) is not str or not assertions:
            return None
        self._ids.note(id_, (), problems)
        expected_output, tags, metadata = more
        return _new_case(
            (
                *(id_, input_, tuple(assertions)),
                _new_evidence((output, NOTHING, UNMEASURED, NOTHING, NOTHING)),
                *(None, None, self._threshold, expected_output, None, tags, metadata),
                *(None, None, None, False, None, ()),
            )
        )


_NOTHING_MORE: Final = (None, (), NOTHING)


def _more(row: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return expected output, tags and metadata of a row; None if it has other keys or values."""
    if not _KEYS <= row.keys() <= _MORE_KEYS:
        return None
    expected_output, tags = row.get("expected_output"), row.get("tags", [])
    metadata = row.get("metadata", {})
    # A list may hold messages, which are read.
    if type(expected_output) is list or type(tags) is not list or type(metadata) is not dict:
        return None
    if not all(type(tag) is str for tag in tags):
        return None
    return expected_output, tuple(tags), metadata or NOTHING


def _give_nothing(defaults: SuiteDefaults) -> bool:
    """Whether the suite gives its tests nothing but a threshold."""
    workspaces = defaults.workspaces
    return not (
        defaults.assertions
        or defaults.messages
        or defaults.input_files
        or defaults.metadata
        or defaults.conversation
        or (workspaces is not None and workspaces.has_shared)
    )
