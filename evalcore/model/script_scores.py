"""What a script suite's run came to, suite by suite and test by test."""

from __future__ import annotations

from typing import NamedTuple


class GroupScore(NamedTuple):
    """The mean of a suite's tests in a variant; None where nothing was scored."""

    variant: str
    group: str | None
    score: float | None


class TestScore(NamedTuple):
    """The mean of a test's iterations in a variant.

    A `placeholder` stands for a suite without tests.
    """

    variant: str
    group: str | None
    case: str
    score: float | None
    placeholder: bool


class TestDetail(NamedTuple):
    """The scores of a test's iterations and what went wrong in them, by iteration.

    `square_sum` is the sum of the squared distances of the scores from their mean.
    """

    iterations: tuple[int, ...]
    scores: tuple[float | None, ...]
    errors: tuple[str | None, ...]
    square_sum: float | None


class Note(NamedTuple):
    """A warning or an error of some iterations of a test."""

    is_error: bool
    variant: str
    case: str
    message: str
    iterations: tuple[int, ...]


class ModelTokens(NamedTuple):
    """What a model was given and made, in tokens."""

    model: str
    input_tokens: int
    output_tokens: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens


class ScriptScores(NamedTuple):
    """The scores of a run; `finals` are the means of the suites, by variant in their order."""

    finals: tuple[tuple[str, float | None], ...]
    groups: tuple[GroupScore, ...]
    tests: tuple[TestScore, ...]
    details: tuple[TestDetail, ...] | None
    tokens: tuple[ModelTokens, ...]
