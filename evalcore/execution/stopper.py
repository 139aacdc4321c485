"""How an execution is ended on demand, from any thread or signal handler."""

from __future__ import annotations

from collections.abc import Callable


class Stopper:
    """Ends an execution. `drain`: no further shard begins. `stop`: items that run are cancelled.

    What is committed stays. Without a lock, so that a signal handler may call it at any moment.
    """

    def __init__(self) -> None:
        self.draining = False
        self.stopped = False
        self._listeners: list[Callable[[], None]] = []

    def drain(self) -> None:
        """Let no further shard begin."""
        self.draining = True
        self._tell()

    def stop(self) -> None:
        """Cancel what runs."""
        self.draining = self.stopped = True
        self._tell()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at each change, at once if there was one; return what ends that.

        It may be called twice for one change, and from any thread.
        """
        self._listeners.append(listener)
        if self.draining:
            listener()

        def forget() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return forget

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()
