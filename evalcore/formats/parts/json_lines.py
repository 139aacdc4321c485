"""Lines of JSON, a value in each, read as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from evalcore.errors import LoadError, Problem
from evalcore.formats.parts.given_output import move_output, name_by_number
from evalcore.formats.parts.raw_test import NO_TEST, RawTest
from evalcore.formats.text.documents import TOO_LARGE, parse_row, refuse_utf16, too_large_at
from evalcore.formats.text.syntax_reasons import json_reason
from evalcore.mistakes.problems import Problems

MAX_LINE_BYTES: Final = 16 * 1024 * 1024


def jsonl_tests(path: Path, name: str) -> Iterator[RawTest]:
    """Yield one test a line; blank lines are skipped, a line that is not JSON is a mistake."""
    number = 0
    problems = Problems(name, lambda _: number, cheap=True)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(byte_lines(file), 1):
                value = line_value(line, number, problems)
                if line is None or value is NO_TEST:
                    continue
                if type(value) is dict:
                    name_by_number(value)
                    if "output" in value:
                        move_output(value, (), problems)
                yield RawTest(value, (), problems, marked=False, is_data=True)
    except OSError as error:
        raise LoadError((Problem(name, None, "", open_reason(error)),)) from error
    yield RawTest(NO_TEST, (), problems)


def line_value(line: bytes | None, number: int, problems: Problems) -> Any:
    """Return what a line holds; `NO_TEST` for a blank one and, noted, for one that is wrong.

    Raises `LoadError` if the first line begins a file in UTF-16.
    """
    if line is None:
        limit = MAX_LINE_BYTES // 2**20
        problems.add((), f"a line of more than {limit} MiB; move the input to a file")
        return NO_TEST
    content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    if number == 1:
        refuse_utf16(content, problems.file)
    try:
        value, problems.replaced = parse_row(content)
    except ValueError as error:
        if content.strip():
            problems.add((), _line_reason(content, error))
        return NO_TEST
    if (loc := too_large_at(content, value)) is not None:
        problems.add(loc, TOO_LARGE)
        return NO_TEST
    return value


def byte_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines; None for one of more than `MAX_LINE_BYTES`, which is never read whole."""
    for line in iter(partial(file.readline, MAX_LINE_BYTES + 1), b""):
        if len(line) <= MAX_LINE_BYTES:
            yield line
            continue
        part = line
        while part and not part.endswith(b"\n"):
            part = file.readline(MAX_LINE_BYTES)
        yield None


def open_reason(error: OSError) -> str:
    """Return why a file of tests cannot be opened, in our words."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a folder; name a suite file"
    return f"cannot be read: {error.strerror}"


def _line_reason(line: bytes, error: ValueError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as broken:
        return f"not UTF-8 (byte 0x{line[broken.start]:02x}); save it as UTF-8"
    hint = " (each line is a test of its own)" if "EOF while" in str(error) else ""
    return f"not valid JSON: {json_reason(error)}{hint}"
