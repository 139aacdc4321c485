"""What the service refuses, as an exception."""

from __future__ import annotations

from typing import Any

from evalcore.errors import EvalError


class ServiceRefusedError(EvalError):
    """The service's answer is not 2xx: its status, and what it says is wrong."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(_message(status, detail))
        self.status = status
        self.detail = detail


def _message(status: int, detail: Any) -> str:
    if isinstance(detail, list):
        mistakes = (
            f"{'.'.join(map(str, mistake.get('loc', ())))}: {mistake.get('msg', '')}"
            for mistake in detail
            if isinstance(mistake, dict)
        )
        detail = "; ".join(mistakes)
    return f"the service answers {status}: {detail}"
