"""How a block fails, and how its whole workflow does."""

from __future__ import annotations

from typing import Final

from evalcore.errors import KindError, TargetError

NO_EXECUTOR: Final = (
    "Case '{id}' requires an executor (no fixtures for all expected blocks) "
    "but no executor was provided."
)


class BlockError(KindError):
    """A block gave no output. `kind` is what `non_retryable_errors` names.

    `retryable`: trying again may help. `route`: the block to go on with, where an inner block of a
    loop names one.
    """

    def __init__(
        self, kind: str, message: str, *, retryable: bool = False, route: str | None = None
    ) -> None:
        super().__init__(kind, message)
        self.retryable = retryable
        self.route = route


class WorkflowError(TargetError):
    """A workflow ended without an output: a block failed and no `error_route` took over."""

    def __init__(self, message: str, kind: str = "workflow") -> None:
        super().__init__(kind, message)

    def __reduce__(self) -> tuple[type[WorkflowError], tuple[str, str]]:
        """Survive pickling."""
        return type(self), (self.message, self.kind)


class NoExecutorError(TargetError):
    """A block needs a model, and no provider is configured."""

    def __init__(self, message: str = "no provider is configured") -> None:
        super().__init__("not_executable", message)

    def __reduce__(self) -> tuple[type[NoExecutorError], tuple[str]]:
        """Survive pickling."""
        return type(self), (self.message,)
