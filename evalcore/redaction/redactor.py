"""The redactor: what is secret in this process is covered wherever a text leaves it.

A process has one (`PROCESS`). It learns secrets where they are read (variables, literals where a
key belongs), and is asked where texts leave: evidence, rows, plans, recordings, telemetry, messages
and everything printed. A target cannot forget it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import logging
import re
import shlex
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple, TextIO
from urllib.parse import quote, quote_plus

import orjson

from evalcore.redaction.names import (
    ALWAYS_READABLE,
    KEYS,
    LITERALS,
    SHORTEST_KEY,
    is_telling,
    may_hold_key,
    secrets_of_environment,
)

_SHORTEST_ENCODED: Final = 8
_SHORTEST_CORE: Final = 5
_UNCHANGED: Final = re.compile(r"[A-Za-z0-9_]+")


def spellings_of(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return every spelling of the secrets, longest first."""
    spelled = {spelling for secret in secrets for spelling in _spellings(secret)}
    return tuple(sorted(spelled, key=lambda spelling: (-len(spelling), spelling)))


def probes_of(spellings: Iterable[str]) -> tuple[str, ...]:
    """Return texts of which one at least stands in each of the spellings; as few as may be.

    Of each the longest part that no escaping changes, so that most spellings share theirs.
    """
    cores: list[str] = []
    for spelling in sorted(spellings, key=lambda text: len(_core(text))):
        core = _core(spelling)
        if not any(shorter in spelling for shorter in cores):
            cores.append(core)
    return tuple(cores)


def _core(text: str) -> str:
    longest = max(_UNCHANGED.findall(text), key=len, default="")
    return longest if len(longest) >= _SHORTEST_CORE else text


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield from _encoded(secret)
    # A key in a file has lines, which are logged line by line.
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= 2 * _SHORTEST_ENCODED)
    # Of `Bearer abc…` a server repeats the second word alone.
    for part in secret.replace(";", " ").replace(",", " ").split():
        if part != secret and len(part) >= _SHORTEST_ENCODED and _is_key(part):
            yield part
            yield from _encoded(part)


def _is_key(part: str) -> bool:
    return is_telling(part) and any(map(str.isdigit, part))


def _encoded(secret: str) -> Iterator[str]:
    # Of a short word the encodings are ordinary texts as well.
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield html.escape(secret)
    yield html.escape(secret, quote=False)
    quoted = shlex.quote(secret)
    yield quoted[1:-1] if quoted.startswith("'") else quoted
    data = secret.encode("utf-8", "surrogatepass")
    for percent in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield percent
        yield _lower_escapes(percent)
    if len(data) >= _SHORTEST_ENCODED:
        yield data.hex()
        yield data.hex().upper()
        yield from _base64(data)


def _lower_escapes(text: str) -> str:
    head, *rest = text.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])


def _base64(data: bytes) -> Iterator[str]:
    """Yield what the bytes are in Base64 text, wherever in the encoded text they begin."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + data).decode()
        # The characters at both ends also hold bits of what stands beside the secret.
        start = -(-8 * shift // 6)
        whole = (8 * (shift + len(data))) // 6
        inner = encoded[start:whole]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


REDACTED: Final = "[redacted]"
_MOST_KEPT: Final = 256


class _Secrets(NamedTuple):
    """The secrets of one moment; immutable, so that readers need no lock.

    One of the `probes` stands in every text that holds a secret in any spelling; one of those in
    `written` if it is spelled as people write it: as it is, or escaped.
    """

    secrets: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    probes_in_bytes: tuple[bytes, ...] = ()
    written: tuple[str, ...] = ()
    written_in_bytes: tuple[bytes, ...] = ()
    finder: re.Pattern[str] | None = None
    own: tuple[re.Pattern[str], ...] = ()


class Redactor:
    """Replaces secrets by `[redacted]`: known values in every spelling, keys, own patterns.

    A value that may be an ordinary word or number (`names.is_telling`) is left alone. Safe in
    several threads.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        patterns: Iterable[str] = (),
        *,
        covers: Callable[[str], bool] = is_telling,
    ) -> None:
        """Take what is secret; `covers` says which values are.

        Raise `ValueError` for a pattern that is no regular expression.
        """
        self._covers = covers
        self._lock = threading.Lock()
        self._current = _Secrets()
        self._derived: dict[frozenset[str], Redactor] = {}
        self._names: dict[str, str] = {}
        self.learn(secrets, patterns)

    @property
    def knows(self) -> bool:
        """Whether there is any value or pattern to look for."""
        current = self._current
        return bool(current.probes or current.own)

    def learn(self, secrets: Iterable[str], patterns: Iterable[str] = ()) -> None:
        """Cover these values and what fits these patterns from now on; `ValueError` as above."""
        current = self._current
        new = frozenset(filter(self._covers, secrets)) - current.secrets
        own = tuple(pattern for pattern in patterns if pattern not in current.patterns)
        if not new and not own:
            return
        with self._lock:
            current = self._current
            self._current = _secrets_of(
                current.secrets | new, tuple(dict.fromkeys((*current.patterns, *own)))
            )
            self._derived = {}

    def learn_environment(
        self, variables: Mapping[str, str], readable: Collection[str] = ()
    ) -> None:
        """Cover what is secret among these variables from now on; suites may read the `readable`.

        A whole value that is secret is sealed by its variable's name in plans.
        """
        named_secrets = list(secrets_of_environment(variables, readable))
        self.learn(secret for _, secret in named_secrets)
        whole = {
            secret: name
            for name, secret in named_secrets
            if (name in readable or name.startswith(ALWAYS_READABLE)) and variables[name] == secret
        }
        if not whole.items() <= self._names.items():
            with self._lock:
                self._names = {**self._names, **whole}

    @property
    def sealable(self) -> list[tuple[str, str]]:
        """The secrets that a suite may read, each with its variable; longest first."""
        return sorted(self._names.items(), key=lambda entry: (-len(entry[0]), entry))

    def value_of(self, name: str, mark: str = "") -> str | None:
        """Return the secret that the variable held: of this mark, else the last; None for neither.

        Suites of several folders may give one name several values.
        """
        values = [value for value, secret_name in self._names.items() if secret_name == name]
        marked = [value for value in values if mark_of(value) == mark]
        return next(reversed(marked or values), None)

    def forget(self) -> None:
        """Forget all values and patterns."""
        with self._lock:
            self._current, self._derived, self._names = _Secrets(), {}, {}

    def knowing(self, secrets: Iterable[str]) -> Redactor:
        """Return one that also covers these values."""
        new = frozenset(filter(self._covers, secrets)) - self._current.secrets
        if not new:
            return self
        derived = self._derived
        redactor = derived.get(new)
        if redactor is None:
            current = self._current
            redactor = Redactor({*current.secrets, *new}, current.patterns)
            if len(derived) < _MOST_KEPT:
                derived[new] = redactor
        return redactor

    def text(self, text: str) -> str:
        """Return a text without the known values and what fits the own patterns."""
        current = self._current
        for probe in current.probes:
            if probe in text and current.finder is not None:
                text = current.finder.sub(REDACTED, text)
                break
        for pattern in current.own:
            text = pattern.sub(_covered, text)
        return text

    def planned_text(self, text: str) -> str:
        """Return a text that came out of the plan, in which nothing was encoded."""
        current = self._current
        if current.own or any(core in text for core in current.written):
            return self.text(text)
        return text

    def reply(self, text: str) -> str:
        """Return what a target or provider said: also without keys of well-known forms."""
        text = self.text(text)
        if len(text) < SHORTEST_KEY or not may_hold_key(text):
            return text
        for finder in KEYS:
            text = finder.sub(REDACTED, text)
        return text

    def message(self, text: str) -> str:
        """Return a message for a person: also without literals where a key belongs."""
        text = self.reply(text)
        for finder in LITERALS:
            text = finder.sub(_after_its_name, text)
        return text

    def value(self, value: Any, cover: Callable[[str], str] | None = None) -> Any:
        """Return a JSON value with its texts covered, names of members too."""
        cover = self.text if cover is None else cover
        if isinstance(value, str):
            return cover(value)
        if isinstance(value, Mapping):
            return {
                cover(name) if isinstance(name, str) else name: self.value(inner, cover)
                for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(inner, cover) for inner in value]
        return value

    def json_value(self, value: Any, cover: Callable[[str], str]) -> Any:
        """Return what `value` does, `cover` being a method of this redactor.

        The value itself if its JSON holds nothing that looks like a secret or a key: one search is
        a tenth of the work of covering each text.
        """
        try:
            data = orjson.dumps(value)
        except TypeError:
            return self.value(value, cover)
        if self.holds(data) or may_hold_key(data.decode()):
            return self.value(value, cover)
        return value

    def holds(self, data: bytes, *, encoded: bool = True) -> bool:
        """Whether a secret may stand in these bytes of JSON or text (UTF-8).

        Without `encoded`, in Base64 or as hexadecimal digits nothing is looked for.
        """
        current = self._current
        if current.own:
            return True
        for probe in current.probes_in_bytes if encoded else current.written_in_bytes:
            if probe in data:
                return True
        return False

    def line(self, line: bytes, *, encoded: bool = True) -> bytes:
        """Return a line of JSON with the texts in it covered; the same line if there is nothing.

        `encoded` as for `holds`.
        """
        if not self.holds(line, encoded=encoded):
            return line
        options = orjson.OPT_APPEND_NEWLINE if line.endswith(b"\n") else 0
        document = orjson.loads(line)
        covered = self.value(document)
        return line if covered == document else orjson.dumps(covered, option=options)


def mark_of(secret: str) -> str:
    """Return two characters that tell apart values of one variable, and nothing else of them."""
    return hashlib.sha256(b"evalcore sealed " + secret.encode("utf-8", "replace")).hexdigest()[:2]


def _secrets_of(secrets: frozenset[str], patterns: tuple[str, ...]) -> _Secrets:
    needles = spellings_of(secrets)
    probes, written = probes_of(needles), probes_of(secrets)
    return _Secrets(
        secrets,
        patterns,
        probes,
        tuple(probe.encode("utf-8", "surrogatepass") for probe in probes),
        written,
        tuple(probe.encode("utf-8", "surrogatepass") for probe in written),
        re.compile("|".join(map(re.escape, needles))) if needles else None,
        tuple(map(_compiled, patterns)),
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None


def _covered(match: re.Match[str]) -> str:
    return REDACTED if match[0] else ""


def _after_its_name(match: re.Match[str]) -> str:
    return f"{match[1]}{REDACTED}"


@lru_cache(maxsize=64)
def redactor_of(secrets: frozenset[str], shortest: int = 4) -> Redactor:
    """Return one for these values alone, words among them, from `shortest` characters on.

    For what a program or a provider says of its own key: there `test` is a key and no word.
    """
    return Redactor(secrets, covers=lambda value: len(value) >= shortest)


PROCESS: Final = Redactor()
"""The redactor of this process."""


_MOST = 50


def cover_exception(error: BaseException) -> None:
    """Take secrets out of an exception and of those that it comes from, in place."""
    waiting: list[BaseException | None] = [error]
    covered: set[int] = set()
    while waiting and len(covered) < _MOST:
        current = waiting.pop()
        if current is None or id(current) in covered:
            continue
        covered.add(id(current))
        _cover(current)
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


def _cover(error: BaseException) -> None:
    error.args = tuple(
        PROCESS.message(value) if isinstance(value, str) else value for value in error.args
    )
    for name in ("message", "__notes__"):
        value = error.__dict__.get(name)
        if isinstance(value, str):
            error.__dict__[name] = PROCESS.message(value)
        elif isinstance(value, list):
            error.__dict__[name] = [PROCESS.message(str(note)) for note in value]


_MARK: Final = "_evalcore_redacts"


def redact_log_records() -> None:
    """Let every log record of this process pass the redactor when it is made; calls may repeat."""
    make = logging.getLogRecordFactory()
    if hasattr(make, _MARK):
        return

    def redacted(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        _cover_record(record)
        return record

    setattr(redacted, _MARK, True)
    logging.setLogRecordFactory(redacted)


def _cover_record(record: logging.LogRecord) -> None:
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001 - foreign arguments; logging reports them itself
        return
    covered = PROCESS.message(text)
    if covered != text:
        record.msg, record.args = covered, ()
    if record.exc_info and record.exc_info[1] is not None:
        cover_exception(record.exc_info[1])


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
