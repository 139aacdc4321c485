"""Why a text is no YAML or no JSON, in our words and with what would work."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

# The parser's words → ours; `{0}` is what the pattern's group found.
_JSON: Final = (
    (r'Detected duplicate key "(.*)"', "duplicate key '{0}'"),
    (r"recursion limit exceeded", "nested too deeply"),
    (r"EOF while parsing (.*)", "it ends in the middle of {0}; something is not closed"),
    (r"trailing comma", "a comma too many before ']' or '}}'"),
    (r"trailing characters", "more text after the end of the value"),
    (r"key must be a string", "expected a key in double quotes (JSON has no comments)"),
    (
        r"expected (?:value|ident)",
        "no JSON value (text stands in double quotes; NaN is none)",
    ),
    (r"control character .*", "a line break or another control character inside a text; escape it"),
    (r"invalid unicode code point", "not UTF-8; save it as UTF-8"),
    (r"(?:invalid|unexpected end of hex) escape", "no valid escape; write a backslash as \\\\"),
)
_INDENTATION: Final = ("did not find expected key", "did not find expected '-' indicator")
_YAML: Final = (
    ("found undefined alias", "alias without an anchor; quote a text that starts with '*'"),
    ("alphabetic or numeric character", "quote a text that starts with '*' or '&'"),
    ("found a tab character", "a tab in the indentation; use spaces"),
    ("escape", "no valid escape in double quotes; use single quotes, or write a backslash as \\\\"),
    ("hexdecimal", "no valid escape in double quotes; use single quotes, or write \\\\ for \\"),
    ("<document start>", "holds several YAML documents; only one is allowed (remove the '...')"),
    ("mapping values are not allowed", "quote a text that contains ': ', or check the indentation"),
    ("comment or line break", "nothing may follow '|' or '>' here; quote a text that starts so"),
    ("expected node content", "a value is missing, or starts with a character that needs quotes"),
    ("directive", "a line cannot start with '%'; quote it"),
    ("unhashable key", "a key must be text, not a list or a mapping"),
    ("second occurrence", "the same anchor is defined twice"),
    ("for merging", "'<<' takes a mapping or a list of mappings"),
)


def json_reason(error: ValueError) -> str:
    """Return what is wrong with a JSON text, without a place."""
    reason = re.sub(r" at line \d+ column \d+$", "", str(error))
    for pattern, words in _JSON:
        match = re.fullmatch(pattern, reason, re.DOTALL)
        if match:
            return words.format(*match.groups())
    return reason


def yaml_reason(error: yaml.MarkedYAMLError, text: str) -> tuple[int | None, str]:
    """Return the line (from 1) and what is wrong there."""
    problem, context = error.problem or "cannot be parsed", error.context or ""
    mark: Any = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    opened: Any = error.context_mark
    if "could not determine a constructor for the tag" in problem:
        tag = problem.rsplit(" ", 1)[-1].strip("'").replace("tag:yaml.org,2002:", "!!")
        return line, f"the tag {tag} is not supported; write a plain value"
    if "expected a single document" in context:
        return line, "holds several YAML documents; only one is allowed (remove the extra '---')"
    if "quoted scalar" in context and "end of stream" in problem:
        return opened.line + 1, "not valid YAML: the quote that is opened here is never closed"
    if "expected ':'" in problem and opened:
        return opened.line + 1, "not valid YAML: expected 'key: value', the ':' is missing"
    return line, f"not valid YAML: {_reason(problem, context, mark, opened, text)}"


def _reason(problem: str, context: str, mark: Any, opened: Any, text: str) -> str:
    before, character = _around(mark, text)
    if "cannot start any token" in problem:
        if character == "\t":
            return "a tab in the indentation; use spaces"
        return f"a value cannot start with '{character}'; quote it"
    if "expected ',' or" in problem and opened:
        bracket = "[" if "sequence" in context else "{"
        return (
            f"expected ',' or the end of the '{bracket}' that is opened at line {opened.line + 1}"
        )
    if problem in _INDENTATION and opened:
        if before.strip(" -"):
            return "more text after the end of a value; quote the whole text"
        what = "list" if "collection" in context else "mapping"
        return (
            f"does not fit the {what} that begins at line {opened.line + 1}; check the indentation"
        )
    return next((words for part, words in _YAML if part in problem or part in context), problem)


def _around(mark: Any, text: str) -> tuple[str, str]:
    """Return the text of the mark's line before the mark, and the character at it."""
    if mark is None:
        return "", ""
    lines = text.split("\n", mark.line + 1)
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[: mark.column], line[mark.column : mark.column + 1]
