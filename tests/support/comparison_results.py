"""Results of variants, written as `evalcore decide` reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalcore.formats.single_gate import read_question
from evalcore.gates.builtin import CustomGate
from evalcore.model.run import GateResult
from evalcore.model.summary import Difference, Summary
from evalcore.pipeline.gates import decide_question

Result = dict[str, Any]


def result(case: str = "c", passed: bool = True, **more: Any) -> Result:
    return {"caseId": case, "passed": passed, **more}


def no_functions(reference: object) -> Callable[..., Any]:
    raise LookupError(reference)


def decide(
    gate: Any,
    resolve: Callable[[CustomGate], Callable[..., Any]] = no_functions,
    **variants: list[Result],
) -> tuple[GateResult, Summary]:
    """Decide a gate over the results of variants; the variant `base` is the baseline."""
    question = {
        "gate": gate,
        "baseline": "base",
        "variants": [{"variantId": name, "cases": cases} for name, cases in variants.items()],
    }
    return decide_question(read_question(question), resolve)


def compare(base: list[Result], cand: list[Result]) -> Summary:
    return decide({"gate": "noRegressions"}, base=base, cand=cand)[1]


def kinds(entries: tuple[Difference, ...]) -> list[str]:
    return [str(entry.kind) for entry in entries]
