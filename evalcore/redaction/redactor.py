"""The redactor: what is secret in this process is covered wherever a text leaves it.

A process has one (`PROCESS`). It learns secrets where they are read (variables, literals where a
key belongs), and is asked where texts leave: evidence, rows, plans, recordings, telemetry, messages
and everything printed. A target cannot forget it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from evalcore.redaction.names import ALWAYS_READABLE, is_telling, secrets_of_environment
from evalcore.redaction.spellings import probes_of, spellings_of
from evalcore.redaction.well_known import (
    KEYS,
    LITERALS,
    SHORTEST_KEY,
    may_hold_key,
)

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

    @property
    def has_patterns(self) -> bool:
        """Whether there are patterns of the configuration, which may depend on a text's ends."""
        return bool(self._current.own)

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
        if self.holds(data) or may_hold_key(data.decode(), is_json=True):
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
