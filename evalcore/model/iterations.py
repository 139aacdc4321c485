"""How often each case is run: a number, or as often as the decision needs."""

from __future__ import annotations

from typing import Final, NamedTuple

AUTO: Final = "auto"
DEFAULT_MOST: Final = 8
MOST_ITERATIONS: Final = 1_000_000
_LARGEST_MAX: Final = 1000
ITERATIONS_FORMS: Final = (
    f"a whole number from 1 to {MOST_ITERATIONS}, "
    f"'auto' or 'auto:MAX' with a MAX from 2 to {_LARGEST_MAX}"
)


class Iterations(NamedTuple):
    """`most` runs of each case; with `auto` fewer, if the gates are decided before."""

    most: int
    auto: bool = False


def parse_iterations(text: str | int) -> Iterations:
    """Return what `3`, `auto` or `auto:20` say; raise `ValueError` for anything else."""
    name, _, most = str(text).strip().partition(":")
    auto = name == AUTO
    number = (most if auto else str(text).strip()) or (str(DEFAULT_MOST) if auto else "")
    least, largest = (2, _LARGEST_MAX) if auto else (1, MOST_ITERATIONS)
    if not (number.isascii() and number.isdigit()) or not least <= int(number) <= largest:
        raise ValueError(f"{str(text)!r} is not a number of iterations: {ITERATIONS_FORMS}")
    return Iterations(int(number), auto)
