"""Single questions and their answers: JSON lines in and out, in the order of the input."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
import orjson

from evalcore.errors import ExitCode
from evalcore.formats.documents import parse_row, too_large_number
from evalcore.report.document import on_one_line
from evalcore.trust.text import sanitize_terminal


class NoQuestionError(Exception):
    """A line of JSON is no question; the message says what one is. `identity` is its `id`."""

    def __init__(self, message: str, identity: object = None) -> None:
        super().__init__(message)
        self.identity = identity


def answer_lines(
    answer: Callable[[Any], Mapping[str, Any]],
    refuse: Callable[[object, str], Mapping[str, Any]],
    unread: Callable[[Any], Iterable[str]],
) -> ExitCode:
    """Print an answer for each line of standard input that is not blank; return the exit code.

    A byte-order mark before the first line is dropped, as in files.
    `refuse` makes the answer to what no suite could have: a line that is no question, whose message
    names it and which makes the exit code 2, or one with a number of more than 64 bits. `unread`
    yields warnings about keys that nothing reads; each is told once, on standard error.
    """
    code = ExitCode.PASS
    warnings: set[str] = set()
    for number, read in enumerate(sys.stdin.buffer, start=1):
        line = read.removeprefix(BOM_UTF8) if number == 1 else read
        if not line.strip():
            continue
        try:
            raw = _parsed(line)
            reply = _answered(line, raw, answer, refuse)
            for warning in unread(raw):
                if warning not in warnings:
                    warnings.add(warning)
                    text = f"standard input:{number}: warning: {warning}"
                    click.echo(sanitize_terminal(text), err=True)
        except NoQuestionError as error:
            code = ExitCode.USAGE
            message = f"standard input:{number}: {error}"
            click.echo(sanitize_terminal(message), err=True)
            reply = refuse(error.identity, message)
        click.echo(on_one_line(orjson.dumps(reply).decode()))
    return code


def _parsed(line: bytes) -> Any:
    try:
        return parse_row(line).value
    except ValueError as error:
        raise NoQuestionError(f"not valid JSON: {error}") from error


def _answered(
    line: bytes,
    raw: Any,
    answer: Callable[[Any], Mapping[str, Any]],
    refuse: Callable[[object, str], Mapping[str, Any]],
) -> Mapping[str, Any]:
    problem = too_large_number(line, raw)
    if problem is None:
        return answer(raw)
    identity = raw.get("id") if isinstance(raw, dict) else None
    return refuse(None if too_large_number(line, identity) else identity, problem)
