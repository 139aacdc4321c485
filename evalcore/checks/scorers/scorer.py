"""What a scorer is: a frozen dataclass with its parameters, its documentation and its score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from evalcore.checks.scorers.score import Score
from evalcore.declared.parameter_types import MaybeText
from evalcore.declared.parameters import parameter_values, snake_case
from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.judging.asking import NO_JUDGES, Judges
from evalcore.model.evidence import NOTHING, Evidence
from evalcore.model.suite import Case, ScorerSpec
from evalcore.trust.imports import ImportPolicy


class ScorerResources(NamedTuple):
    """What scorers that are awaited may use: code, the program's objects, judges, workers."""

    imports: ImportPolicy
    objects: Mapping[str, Any] = NOTHING
    judges: Judges = NO_JUDGES
    workers: Workers = NO_WORKERS


@dataclass(frozen=True)
class Scorer:
    """A measurement of an item in [0, 1]; the fields of a subclass are its parameters.

    `kind` is the class's name in snake_case, without `Scorer`.
    """

    kind: ClassVar[str]
    name: MaybeText = field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        name = cls.__name__.removesuffix("Scorer")
        cls.kind = snake_case(name[0].lower() + name[1:])

    @property
    def default_name(self) -> str:
        """The name where the suite gives none."""
        return self.kind

    @cached_property
    def label(self) -> str:
        """The name of the score."""
        return self.name or self.default_name

    @cached_property
    def is_awaited(self) -> bool:
        """Whether `ask` gives the score, and not `score`."""
        return False

    @property
    def spec(self) -> ScorerSpec:
        """The form in which a suite and a stored plan hold the scorer."""
        params = parameter_values(self)
        named = params.pop("name") is not None
        return ScorerSpec(self.label, self.kind, params, named)

    def score(self, evidence: Evidence, case: Case) -> Score:
        """Return the score; may raise for values of a foreign shape."""
        raise NotImplementedError

    async def ask(self, evidence: Evidence, case: Case, resources: ScorerResources) -> Score:
        """Return the score of a scorer that is awaited; never raises."""
        raise NotImplementedError

    def fails(self, error: object) -> Score:
        """Return the score without a value, and why."""
        return Score(self.label, None, error=str(error))
