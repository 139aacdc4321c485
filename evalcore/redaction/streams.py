"""Standard output and error of the command line: what is printed passes the redactor."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from evalcore.redaction.redactor import PROCESS

OUTPUT: Final = "<stdout>"
"""How Python calls its standard output."""


class RedactedStream(io.TextIOWrapper):
    """A text stream over the bytes of another that prints no secret."""

    def write(self, text: str, /) -> int:
        """Write the text without secrets; return how many characters it had."""
        with self._named():
            super().write(PROCESS.text(text) if PROCESS.knows else text)
        return len(text)

    def flush(self) -> None:
        """Write what is in the buffer."""
        with self._named():
            super().flush()

    def close(self) -> None:
        """Write what is in the buffer. It stays open: a suite's code may close it, and what the
        command has to say comes after that.
        """
        self.flush()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Let an error of the system say whose it is: those of open files name none."""
        try:
            yield
        except OSError as error:
            error.filename = self.name
            raise


def redact_standard_streams() -> None:
    """Let everything that this process prints pass the redactor."""
    sys.stdout = _redacted(sys.stdout)
    sys.stderr = _redacted(sys.stderr)


def _redacted(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, RedactedStream):
        return stream
    return RedactedStream(
        stream.buffer,
        encoding=stream.encoding,
        # What the encoding does not have is escaped: a mark or a name ends no command.
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
