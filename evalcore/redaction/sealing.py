"""Secrets in a stored plan: the name of the variable stands where its value was.

What a suite reads with `${{ NAME }}` may go into any text of a plan: a body, an argument, a hook.
The plan holds `${{ sealed NAME 3f }}` there, and a process that executes it puts its own value of
NAME in its place. A secret that no suite may read is `[redacted]` for good. A text that has the
sign already keeps it: in the plan it is `${{ sealed - }}` and the rest, which reads no variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from evalcore.redaction.redactor import PROCESS, REDACTED, Redactor, mark_of

_SIGN: Final = "${{ sealed "
_ITSELF: Final = "${{ sealed - }}"
_SEALED: Final = re.compile(r"\$\{\{ sealed (?:-|([A-Za-z_][A-Za-z0-9_]*) ([0-9a-f]{2})) \}\}")
_IN_BYTES: Final = _SIGN.encode()
# What is checked is compared with outputs, which are redacted before they are graded.
_COMPARED: Final = frozenset({"expected_output", "criteria", "fixture", "given"})
# Checks that have settings of their own beside what they compare.
_PROGRAMS: Final = frozenset({"code-grader", "composite", "custom", "python", "script-score"})
_PATTERNS: Final = frozenset({"regex", "output-matches"})


def seal_block(block: bytes, redactor: Redactor = PROCESS) -> bytes:
    """Return a plan's lines of JSON without secrets; `unseal` gives back what is read."""
    if not (_IN_BYTES in block or redactor.holds(block, encoded=False)):
        return block
    options = orjson.OPT_APPEND_NEWLINE
    lines = [orjson.loads(line) for line in block.splitlines()]
    return b"".join(orjson.dumps(_sealed_line(line, redactor), option=options) for line in lines)


def seal_document(data: bytes, redactor: Redactor = PROCESS) -> bytes:
    """Return one JSON document (a suite's definition) without secrets."""
    if not (_IN_BYTES in data or redactor.holds(data, encoded=False)):
        return data
    sealed = _sealed(orjson.loads(data), redactor)
    return orjson.dumps(sealed, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def unseal(data: bytes, redactor: Redactor = PROCESS) -> bytes:
    """Return the lines or document with the values of the variables that are set here.

    A variable that is not set leaves its sign.
    """
    if _IN_BYTES not in data:
        return data

    def opened(match: re.Match[str]) -> str:
        if match[1] is None:
            return _SIGN
        value = redactor.value_of(match[1], match[2])
        return match[0] if value is None else orjson.dumps(value).decode()[1:-1]

    return _SEALED.sub(opened, data.decode()).encode()


def missing_variables(data: bytes, redactor: Redactor = PROCESS) -> list[str]:
    """Return the variables whose values these bytes need and this process does not have."""
    if _IN_BYTES not in data:
        return []
    names = {match[1] for match in _SEALED.finditer(data.decode())} - {None}
    return sorted(name for name in names if redactor.value_of(name) is None)


def _sealed_line(line: Any, redactor: Redactor) -> Any:
    """Return a case, or the head of a block, whose assertions are a table, without secrets."""
    if not isinstance(line, Mapping):
        return _sealed(line, redactor)
    return {key: _sealed_field(key, value, redactor) for key, value in line.items()}


def _sealed_field(key: str, value: Any, redactor: Redactor) -> Any:
    if key == "assertions" and isinstance(value, list):
        return [_sealed_assertion(entry, redactor) for entry in value]
    return redactor.value(value) if key in _COMPARED else _sealed(value, redactor)


def _sealed_assertion(assertion: Any, redactor: Redactor) -> Any:
    """Return an assertion of a block's table: (type, check, …); a case has its number."""
    check = assertion[1] if isinstance(assertion, list) and len(assertion) > 1 else None
    if check in _PROGRAMS:
        return _sealed(assertion, redactor)
    if check in _PATTERNS:
        return redactor.value(
            assertion, lambda text: redactor.text(text).replace(REDACTED, re.escape(REDACTED))
        )
    return redactor.value(assertion)


def _sealed(value: Any, redactor: Redactor) -> Any:
    return redactor.value(value, lambda text: _sealed_text(text, redactor))


def _sealed_text(text: str, redactor: Redactor) -> str:
    text = text.replace(_SIGN, _ITSELF)
    for secret, name in redactor.sealable:
        text = text.replace(secret, f"{_SIGN}{name} {mark_of(secret)} }}}}")
    return redactor.text(text)
