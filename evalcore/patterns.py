"""Patterns of Python (`re`) and ECMAScript (`regress`), and searches that end in time.

Neither engine can be interrupted, and `regress` holds the interpreter's lock. A search that is
certain to end soon runs here; any other one runs in a worker process, which is killed when its
time is up.
"""

from __future__ import annotations

import atexit
import re
import warnings
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evalcore.wording import quote

if TYPE_CHECKING:
    from evalcore.isolation.pool import WorkerPool
    from evalcore.isolation.worker import Engine

PYTHON: Final = "python"
ECMASCRIPT: Final = "ecmascript"
PYTHON_FLAGS: Final = "ailmsux"
ECMASCRIPT_FLAGS: Final = "gimsu"

# About a tenth of a second of either engine.
_AFFORDABLE_STEPS: Final = 10_000_000
_MOST_CHOICES: Final = 12
_ESCAPED: Final = r"\\(?:[1-9]|k<|.)"
_ATOMS: Final = {
    PYTHON: re.compile(rf"{_ESCAPED}|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL),
    ECMASCRIPT: re.compile(rf"{_ESCAPED}|\[(?:\\.|[^\]\\])*\]", re.DOTALL),
}
_REPEATED_GROUP: Final = re.compile(r"\)(?:[*+]|\{)")
_REPEAT: Final = re.compile(r"[*+]|\{\d*,\d*\}|\(\?P=")
_COUNT: Final = re.compile(r"\{(\d{1,9})\}")
# Braces mean code points with the flag `u` only, and a count of letters without it.
_BRACES_OF_U: Final = re.compile(r"\\(u)(?=\{)|\\.", re.DOTALL)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class PatternError(ValueError):
    """A pattern is not valid in its dialect, or its search was stopped.

    `position` is the character of the pattern that is wrong (from 0), None if it is not known.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message, position)
        self.message = message
        self.position = position

    def __str__(self) -> str:
        if self.position is None:
            return self.message
        return f"{self.message} at position {self.position}"


class PatternMatch(NamedTuple):
    """Where a pattern matches, and its groups; the first group is the whole match."""

    span: tuple[int, int]
    groups: tuple[str | None, ...]


class Pattern:
    """A compiled pattern. Each search raises `PatternError` when its time is up."""

    def __init__(self, text: str, flags: str, dialect: str, compiled: Any) -> None:
        self.text, self._flags, self._dialect, self._compiled = text, flags, dialect, compiled
        self._cost = _Cost.of(text, dialect)

    def is_found_in(self, text: str, timeout_s: float) -> bool:
        """Return whether the pattern matches somewhere in the text."""
        return self._find("search", text, timeout_s) is not None

    def search(self, text: str, timeout_s: float) -> PatternMatch | None:
        """Return the first match in the text; for patterns of Python."""
        return self._find("search", text, timeout_s)

    def match(self, text: str, timeout_s: float) -> PatternMatch | None:
        """Return the match at the beginning of the text; for patterns of Python."""
        return self._find("match", text, timeout_s)

    def fullmatch(self, text: str, timeout_s: float) -> PatternMatch | None:
        """Return the match of the whole text; for patterns of Python."""
        return self._find("fullmatch", text, timeout_s)

    def _find(self, how: str, text: str, timeout_s: float) -> PatternMatch | None:
        if self._cost.is_affordable(len(text)):
            return self.find(how, text)
        from evalcore.errors import TargetError
        from evalcore.isolation.pool import Job

        search = (self.text, self._flags, self._dialect, how, text)
        job, pool = Job("evalcore.patterns:find_in_worker", search), _pool()
        try:
            found = pool.start(pool.call(job, timeout_s=timeout_s)).result()
        except TimeoutError:
            reason = f"took longer than {timeout_s:g} s"
            raise PatternError(f"the search for {quote(self.text)} {reason}") from None
        except TargetError as error:
            raise PatternError(f"the search for {quote(self.text)} failed: {error}") from None
        return None if found is None else PatternMatch(tuple(found[0]), tuple(found[1]))

    def find(self, how: str, text: str) -> PatternMatch | None:
        """Return what a method of `re.Pattern` finds, however long that takes.

        For a pattern of ECMAScript `how` is `search`, and the match has no groups.
        """
        if self._dialect == ECMASCRIPT:
            text = text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)
            found = self._compiled.find(text)
            return None if found is None else PatternMatch((0, 0), ())
        match = getattr(self._compiled, how)(text)
        return None if match is None else PatternMatch(match.span(), (match[0], *match.groups()))


class _Cost(NamedTuple):
    """A bound for the steps of a search: size · (length + 1) ** power; None: there is none."""

    size: int
    power: int | None

    @classmethod
    def of(cls, text: str, dialect: str) -> _Cost:
        """Return the bound for a pattern: how often a search may begin anew, and how many ways."""
        bare = _ATOMS[dialect].sub(_placeholder, text)
        choices = bare.count("?") + (bare.count("|") if "(" in bare else 0)
        if _REPEATED_GROUP.search(bare) or choices > _MOST_CHOICES:
            return cls(0, None)
        size = (len(text) + 1 + sum(int(count) for count in _COUNT.findall(bare))) << choices
        references = bare.count("\0")
        return cls(size, 1 + len(_REPEAT.findall(bare)) + references)

    def is_affordable(self, length: int) -> bool:
        """Return whether a search in a text of this length ends soon."""
        return self.power is not None and self.size * (length + 1) ** self.power < _AFFORDABLE_STEPS


def _placeholder(atom: re.Match[str]) -> str:
    is_reference = atom[0][0] == "\\" and (atom[0][1] in "123456789" or atom[0] == "\\k<")
    return "\0" if is_reference else "x"


@lru_cache(maxsize=1024)
def compile_pattern(text: str, flags: str = "", dialect: str = PYTHON) -> Pattern:
    """Return the pattern in its dialect, `python` or `ecmascript`, with flags as letters.

    Raises `PatternError` where the dialect does not allow the pattern or a flag.
    """
    if dialect not in _ATOMS:
        raise _invalid(text, f"unknown dialect {dialect!r} (valid are {', '.join(_ATOMS)})")
    known = ECMASCRIPT_FLAGS if dialect == ECMASCRIPT else PYTHON_FLAGS
    for index, flag in enumerate(flags):
        if flag not in known:
            raise _invalid(text, f"unknown flag {flag!r} (valid are {', '.join(known)})")
        if dialect == ECMASCRIPT and flag in flags[:index]:
            raise _invalid(text, f"the flag {flag!r} is repeated")
    compiled = _ecmascript(text, flags) if dialect == ECMASCRIPT else _python(text, flags)
    return Pattern(text, flags, dialect, compiled)


def _python(text: str, flags: str) -> re.Pattern[str]:
    bits = 0
    for flag in flags:
        bits |= re.RegexFlag[flag.upper()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(text, bits)
    except re.error as error:
        raise _invalid(text, error.msg, error.pos) from None
    except (OverflowError, RecursionError, ValueError) as error:
        raise _invalid(text, str(error)) from None


def _ecmascript(text: str, flags: str) -> Any:
    import regress

    meant = _LONE_SURROGATE.sub("\ufffd", text)
    if "u" not in flags:
        meant = _BRACES_OF_U.sub(lambda match: match[1] or match[0], meant)
    try:
        return regress.Regex(meant, flags)
    except regress.RegressError as error:
        raise _invalid(text, str(error).rstrip(".")) from None


def _invalid(text: str, reason: str, position: int | None = None) -> PatternError:
    return PatternError(f"invalid pattern {quote(text)}: {reason}", position)


@cache
def _pool() -> WorkerPool:
    """Return the processes that search; they end with this one."""
    from evalcore.isolation.pool import WorkerPool

    pool = WorkerPool(limit=2)
    atexit.register(pool.close)
    return pool


async def find_in_worker(search: tuple[str, str, str, str, str], engine: Engine) -> Any:
    """Return the span and the groups of a match, None without one: what a worker process runs."""
    text, flags, dialect, how, searched = search
    pattern = compile_pattern(text, flags, dialect)
    engine.loaded()
    return pattern.find(how, searched)
