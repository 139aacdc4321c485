"""What a value is here: which types are known, how large one is, what an expression may return."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from evalcore.expressions.budget import Budget, LimitError

_LONG: Final = 65_536
SCALARS: Final = frozenset({str, int, float, bool, type(None)})
NUMBERS: Final = frozenset({int, float, bool})
VIEWS: Final = frozenset({type({}.keys()), type({}.values()), type({}.items())})
_FLAT: Final = frozenset({list, tuple, set, frozenset}) | VIEWS
SETS: Final = frozenset({set, frozenset})
_BASES: Final = (str, list, tuple, set, frozenset)
# Deeper ones overflow the stack of C code that hashes or compares them.
DEEPEST: Final = 100
# `int` to text takes quadratic time.
LARGEST_BITS: Final = 10_000
LARGEST: Final = 1 << LARGEST_BITS
# Lazy values on lazy values take a C stack frame each.
_LAZY_DEPTH: Final = 50


class EvaluationFailure(Exception):  # noqa: N818 - not an error of its own kind
    """An error with a message of our own; `kind` is the exception class that Python would raise."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


class Lazy:
    """What a generator expression, `map`, `zip` and their like give: values on demand, once.

    `iterator` takes a step for each value.
    """

    __slots__ = ("_iterator", "depth")

    def __init__(self, iterator: Iterator[Any], *sources: Any) -> None:
        self._iterator = iterator
        below = [source.depth for source in sources if isinstance(source, Lazy)]
        self.depth: int = 1 + max(below, default=0)
        if self.depth > _LAZY_DEPTH:
            raise LimitError(f"more than {_LAZY_DEPTH} generators stand on each other")

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)


def plain(value: Any) -> Any:
    """Return a number, text or collection whose class is derived from a builtin one as the builtin.

    Their operators could be anything; the builtin's are known. Other values come back as they are.
    """
    kind = type(value)
    if kind in SCALARS or kind in _FLAT or kind is dict:
        return value
    if isinstance(value, str):
        return str.__getitem__(value, slice(None))
    if isinstance(value, int):
        return int.__pos__(value)
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, tuple):
        return tuple.__getitem__(value, slice(None))
    if isinstance(value, list):
        return list.copy(value)
    return value


def walk(value: Any, budget: Budget) -> tuple[int, int]:
    """Return how many elements a value has at all depths, and its size in bytes.

    What stands in two places counts twice. Takes a step for each 32 elements. Raises `LimitError`
    for one that is larger than the budget's bytes, nested too deeply, or holds itself.
    """
    most = budget.bytes >> 3
    count = size = 0
    level: Iterable[Any] = (value,)
    for _ in range(DEEPEST):
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is str:
                size += len(each)
            elif kind is int:
                size += 8 + (each.bit_length() >> 3)
            elif kind in SCALARS:
                size += 8
            else:
                elements = _elements(each)
                size += 8
                count += range_length(each) if kind is range else sum(map(len, elements))
                if count <= most:
                    for part in elements:
                        below.extend(part)
            if count > most or size > budget.bytes:
                raise LimitError(f"a value is larger than {budget.bytes:,} bytes")
        if not below:
            budget.charge(count >> 5)
            return count, size + 8 * count
        level = below
    raise LimitError(f"a value is nested deeper than {DEEPEST} levels")


def range_length(value: range) -> int:
    """Return how many numbers a range has; `len()` knows only those that memory could hold."""
    return max(
        0, (value.stop - value.start + value.step - (1 if value.step > 0 else -1)) // value.step
    )


def _elements(value: Any) -> tuple[Any, ...]:
    """Return the collections of what a value holds: a mapping's keys and values, for one."""
    if type(value) in _FLAT:
        return (value,)
    if isinstance(value, Mapping):
        return (value, value.values())
    return (value,) if isinstance(value, (list, tuple, set, frozenset)) else ()


def base_of(value: Any) -> Any:
    """Return the builtin class that a text or a collection is of, or None; not for mappings."""
    return next((base for base in _BASES if isinstance(value, base)), None)


def iterate(value: Any, budget: Budget) -> Iterator[Any]:
    """Return an iterator over a collection, text, range or lazy value; takes no steps for values.

    A set has an order that is the same in every process; putting it in order takes steps.
    """
    kind = type(value)
    if kind in SETS:
        return iter(in_order(value, budget))
    if kind is list or kind is Lazy or kind is range:
        return iter(value)
    if kind in _FLAT or kind is str or kind is dict or isinstance(value, Mapping):
        return iter(value)
    base = base_of(value)
    if base in SETS:
        return iter(in_order(base.copy(value), budget))
    if base is not None:
        return base.__iter__(value)  # type: ignore[no-any-return]
    raise EvaluationFailure("TypeError", f"{describe(value)} cannot be iterated over")


def in_order(members: Collection[Any], budget: Budget | None = None) -> list[Any]:
    """Return the members of a set in an order that is the same in every process.

    Takes steps for writing and sorting them, where there is a budget.
    """
    if budget is not None and len(members) > 1:
        count, size = walk(members, budget)
        budget.charge((count * len(members).bit_length() >> 5) + (size >> 8))
    return sorted(members, key=lambda member: (type(member).__name__, repr(member)))


def take(value: Any, budget: Budget) -> list[Any]:
    """Return the values of what can be iterated over as a new list; a step for each."""
    if type(value) is not Lazy:
        length = length_of(value)
        budget.room(8 * length)
        budget.charge(length)
        return list(iterate(value, budget))
    return list(value)


def length_of(value: Any) -> int:
    """Return the length of a text, a collection or a range."""
    kind = type(value)
    if kind is range:
        return range_length(value)
    if kind in _FLAT or kind in (str, dict):
        return len(value)
    if isinstance(value, Mapping):
        return len(value)
    if (base := base_of(value)) is not None:
        return base.__len__(value)  # type: ignore[no-any-return]
    raise EvaluationFailure("TypeError", f"{describe(value)} has no length")


def check_key(key: Any, budget: Budget) -> None:
    """Raise where hashing or comparing the key would take too long or too deep a stack."""
    if type(key) not in SCALARS and isinstance(key, (tuple, frozenset)):
        budget.charge(walk(key, budget)[0])


def check_keys(keys: Iterable[Any], budget: Budget) -> None:
    """Do what `check_key` does for many."""
    for key in keys:
        if type(key) not in SCALARS:
            check_key(key, budget)


def finish(value: Any, budget: Budget) -> Any:
    """Return what an expression returns: a lazy value and a view of a mapping as a list.

    Raises `LimitError` for what is larger than the budget's bytes or nested too deeply, and
    `EvaluationFailure` for a lazy value within a collection.
    """
    kind = type(value)
    if kind in SCALARS:
        if kind is str and len(value) > budget.bytes:
            raise LimitError(f"the result is larger than {budget.bytes:,} bytes")
        return value
    if kind is Lazy or kind in VIEWS:
        value = take(value, budget)
    walk(value, budget)
    _refuse_lazy(value)
    return value


def check_stored(value: Any, into: Any, budget: Budget) -> None:
    """Raise where a collection may not take a value, as the collection outlives the expression.

    That is what `finish` refuses, and a value that holds the collection itself. One that has grown
    beyond the budget's bytes is found when its length doubles or the value is long.
    """
    size = len(value) if type(value) is str else 0
    if type(value) not in SCALARS:
        size = walk(value, budget)[1]
        _refuse_lazy(value, into)
    length = len(into)
    if size > _LONG or length & (length - 1) == 0:
        walk(into, budget)


def _refuse_lazy(value: Any, into: Any = None) -> None:
    """Raise for what would run outside the expression; `value` is known to be small."""
    level: list[Any] = [value]
    while level:
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind in SCALARS:
                continue
            if kind is Lazy or kind in VIEWS:
                raise EvaluationFailure(
                    "TypeError", "a generator in a value; make a list of it: list(…)"
                )
            if into is not None and each is into:
                raise EvaluationFailure("ValueError", "a collection cannot hold itself")
            if kind in _FLAT:
                below.extend(each)
            elif kind is dict:
                below.extend(each)
                below.extend(each.values())
        level = below


def describe(value: Any) -> str:
    """Return "a list", "an int", "None"."""
    if value is None:
        return "None"
    name = "generator" if type(value) is Lazy else type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
