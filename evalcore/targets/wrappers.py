"""A target with its fallbacks."""

from __future__ import annotations

from collections.abc import Sequence

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import ProviderError, SkippedError
from evalcore.model.suite import Case
from evalcore.targets.answers import failed_call_of
from evalcore.targets.work import Runnable, Work


class WithFallbacks:
    """Asks the first target; where that gives no answer, its fallbacks in their order.

    The evidence is that of the target which answered; the failures stand in its details. If none
    answers, the error has the kind of the first one's and all messages.
    """

    def __init__(self, named: Sequence[tuple[str, Runnable]]) -> None:
        self._named = named
        self.targets = tuple(target for _, target in named)

    def waits(self, case: Case) -> bool:
        """Return whether one of the targets waits."""
        return any(target.waits(case) for target in self.targets)

    async def answer(self, work: Work) -> Evidence:
        """Return the first answer; raise the first target's error if there is none."""
        failures: list[tuple[str, TargetError]] = []
        for name, target in self._named:
            try:
                evidence = await target.answer(work)
            except SkippedError:
                raise
            except TargetError as error:
                failures.append((name, error))
            else:
                return _with_failures(evidence, failures) if failures else evidence
        first = failures[0][1]
        failed = "".join(f"; fallback '{name}': {error}" for name, error in failures[1:])
        message = f"{first}{failed}"
        if not isinstance(first, ProviderError):
            raise TargetError(first.kind, message) from first
        raise ProviderError(
            first.kind, message, first.status, first.retry_after_s, first.attempts
        ) from first


def _with_failures(evidence: Evidence, failures: Sequence[tuple[str, TargetError]]) -> Evidence:
    details = dict(evidence.details)
    calls = [
        failed_call_of(error, name) for name, error in failures if isinstance(error, ProviderError)
    ]
    details["calls"] = [*calls, *details.get("calls", ())]
    messages = [f"{name}: {error}" for name, error in failures]
    details["errors"] = [*messages, *details.get("errors", ())]
    return evidence._replace(details=details)
