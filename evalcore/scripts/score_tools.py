"""Tools that make a score of counts; suites call them by name without importing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from evalcore.scripts.failure import ToolError
from evalcore.scripts.iteration import Iteration, Scope
from evalcore.scripts.tool_parameters import ToolParameter, checked_input, json_schema

_COUNTS: Final = ("true_positives", "false_negatives", "false_positives")


def _f_beta(hits: int, missed: int, false_alarms: int, beta: float) -> float:
    """Return the F-beta score in [0, 1]; 0 without hits (van Rijsbergen 1979)."""
    if hits == 0:
        return 0.0
    precision, recall = hits / (hits + false_alarms), hits / (hits + missed)
    weight = beta**2
    divisor = weight * precision + recall
    return (1 + weight) * precision * recall / divisor if divisor else 0.0


def _linear(hits: int, missed: int, false_alarms: int, w_fn: float, w_fp: float) -> float:
    """Return a score from 0 to 100, as llm-workers computes it.

    100 less the weighted share of errors that are expected; 10 · `w_fp` for each false alarm where
    none is expected.
    """
    if hits + missed == 0:
        return max(0.0, 100.0 - false_alarms * w_fp * 10.0)
    penalty = (w_fn * missed + w_fp * false_alarms) / (hits + missed)
    return max(0.0, 100.0 - penalty * 100.0)


class ScoreTool:
    """Computes a score; it waits for nothing."""

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Sequence[ToolParameter],
        compute: Callable[..., float],
    ) -> None:
        self.name = name
        self.description = description
        self._parameters = tuple(parameters)
        self._compute = compute

    def waits(self, asked_tools: set[int]) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return False."""
        return False

    def parameters(self) -> tuple[str, ...] | None:
        """Return the names of the parameters."""
        return tuple(parameter.name for parameter in self._parameters)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        return json_schema(self._parameters)

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return the score; raise `ToolError` for parameters that do not fit."""
        values = checked_input(self.name, self._parameters, params)
        try:
            return self._compute(*values.values())
        except (ZeroDivisionError, OverflowError) as error:
            raise ToolError(type(error).__name__, f"{self.name}: {error}") from None


def score_tools() -> tuple[ScoreTool, ...]:
    """Return the tools, new ones each time."""
    counts = [ToolParameter(name=name, type="int") for name in _COUNTS]
    beta = ToolParameter(name="beta", type="float", default=1.0)
    weights = [
        ToolParameter(name="w_fn", type="float", default=2.0),
        ToolParameter(name="w_fp", type="float", default=0.5),
    ]
    return (
        ScoreTool("f_beta_score", "Computes the F-beta score.", [*counts, beta], _f_beta),
        ScoreTool("linear_score", "Computes a score of 0 to 100.", [*counts, *weights], _linear),
    )
