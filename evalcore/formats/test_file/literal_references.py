"""`{{ name }}` in assertions of test files: only prompts of graders are filled, the rest warns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from evalcore.formats.parts.suite_warnings import CaseWarnings
from evalcore.formats.test_file.case_variables import CaseVariables, references_in
from evalcore.judging.prompts import VARIABLES
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import path_text
from evalcore.model.assertion import Assertion

MARK: Final = "{{"
_COMPARED: Final = ("value", "criteria", "expected")
_FIELDS: Final = frozenset({*VARIABLES, "metadata", "vars", "id", "rubrics"} - {"results"})
_LITERAL: Final = "is literal text: assertions are not filled"
_REPEATED: Final = (
    "write the text itself (in YAML an anchor repeats it: `expected_output: &answer …`, "
    "`value: *answer`)"
)
_GRADED: Final = f"{_REPEATED}, or compare by an `llm-grader`, whose `prompt` is filled"


class LiteralReferences:
    """Warns of references in assertions that name a field or a variable of the test.

    `variables` are those of the test that is read, None if it has none.
    """

    def __init__(self, warnings: CaseWarnings | None) -> None:
        self._warnings = warnings
        self.variables: CaseVariables | None = None

    def note(self, raw: Mapping[str, Any], loc: Loc, problems: Problems, label: str) -> None:
        """Warn of the references in what an assertion compares with."""
        if self._warnings is None:
            return
        for key in _COMPARED:
            compared = raw.get(key)
            if compared is None or (type(compared) is str and MARK not in compared):
                continue
            for path, reference in references_in(compared):
                advice = self._advice(reference.partition(".")[0])
                if advice is not None:
                    written = path_text((*loc, key, *path))
                    text = f"{{{{ {reference} }}}} {_LITERAL}; {advice}"
                    self._warnings.add(
                        f"{label + ': ' if label else ''}{written}: {text}",
                        (*loc, key, *path),
                        problems,
                        name=written,
                        several=f"{{count}} assertions ({{names}}): {text}",
                    )

    def note_suites(self, assertions: tuple[Assertion, ...], loc: Loc, problems: Problems) -> None:
        """Warn of the variables of a test that assertions of the suite name; `loc` has them."""
        values = self.variables
        if self._warnings is None or values is None:
            return
        for name in dict.fromkeys(_variables_of(assertions)):
            if name in values.names and name not in _FIELDS:
                values.unused.pop(name, None)
                text = f"{{{{ {name} }}}} in an assertion of the suite {_LITERAL}"
                several = f"{{count}} tests ({{names}}): {text}; write the text itself"
                written = path_text((*loc, name))
                line = f"{written}: {text}; write the text itself"
                self._warnings.add(line, (*loc, name), problems, name=written, several=several)

    def _advice(self, name: str) -> str | None:
        """Return what to write in place of a reference; None if nothing of the test is named."""
        values = self.variables
        if values is not None and name in values.names:
            values.unused.pop(name, None)
            return _REPEATED
        return _GRADED if name in _FIELDS else None


def _variables_of(assertions: tuple[Assertion, ...]) -> Iterator[str]:
    for assertion in assertions:
        compared = {key: value for key, value in assertion.params.items() if key != "prompt"}
        for _, reference in references_in(compared):
            yield reference.partition(".")[0]
