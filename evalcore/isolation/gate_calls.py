"""A custom gate in a worker process: its function is called there, its decision comes back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import TargetError
from evalcore.gates.builtin import CustomGate, GateFunctions
from evalcore.isolation.pool import Job, WorkerPool
from evalcore.model.run import GateOutcome, GateResult
from evalcore.trust.imports import ImportPolicy, in_thread

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine

_ENTRY: Final = "evalcore.isolation.gate_calls:decide_in_worker"
_LONGEST_S: Final = 300.0


def decide_in_process(
    gate: CustomGate, imports: ImportPolicy, report: Mapping[str, Any]
) -> GateResult:
    """Return what a custom gate decides in a process of its own; raise `TargetError`."""
    job = Job(_ENTRY, (gate, imports, report))
    with closing(WorkerPool(limit=1)) as pool:
        try:
            decided = pool.start(pool.call(job, timeout_s=_LONGEST_S)).result()
        except TimeoutError:
            raise TargetError("timeout", f"no decision within {_LONGEST_S:g} s") from None
    name, outcome, message, details = decided
    return GateResult(name, GateOutcome(outcome), message, details)


async def decide_in_worker(
    call: tuple[CustomGate, ImportPolicy, Mapping[str, Any]], engine: Engine
) -> list[Any]:
    """Return what the gate decides, as JSON values: what a worker process runs."""
    gate, imports, report = call
    functions = GateFunctions(lambda gate: imports.load(str(gate.fn)), lambda: report)
    engine.loaded()
    decided = await in_thread(lambda: gate.call(functions))
    return [decided.name, decided.outcome, decided.message, dict(decided.details)]
