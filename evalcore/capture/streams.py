"""Generators that yield what others yield, and note it; `send`, `throw`, `close` pass through."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from functools import wraps
from typing import Any, Final, NamedTuple

from evalcore.capture.snapshot import MAX_CHARACTERS, SnapshotError, snapshot

MOST_CHUNKS: Final = 5_000


class Chunks:
    """What a generator has yielded, within bounds; `overflow` says that there was more.

    `size` is about the number of their bytes. `complete` says that it came to its end, and all of
    it is here.
    """

    __slots__ = ("complete", "overflow", "size", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.size = 0
        self.overflow = False
        self.complete = False

    def note(self, value: Any) -> None:
        """Note a value as it is now; never raises."""
        if self.overflow:
            return
        try:
            copy, size = snapshot(value)
            self.values.append(copy)
            self.size += size
        # Of a value that cannot be read: the stream goes on.
        except (SnapshotError, AttributeError, TypeError, RuntimeError):
            self.overflow = True
        if len(self.values) > MOST_CHUNKS or self.size > MAX_CHARACTERS:
            self.overflow = True


_NO_CHUNKS: Final = Chunks()
_NO_CHUNKS.overflow = True

# Called with the exception that ended the generator, if any, and whether it came to its end.
Finished = Callable[[BaseException | None, bool], None]


class NotedStream(NamedTuple):
    """What notes the chunks of one call, and what is called at its end."""

    chunks: Chunks
    finished: Finished


def noted_generator(
    source: Generator[Any, Any, Any], chunks: Chunks, finished: Finished
) -> Generator[Any, Any, Any]:
    """Yield what `source` yields and return what it returns."""
    sent: Any = None
    raised: BaseException | None = None
    try:
        while True:
            if raised is not None:
                error, raised = raised, None
                value = source.throw(error)
            else:
                value = source.send(sent)
            chunks.note(value)
            try:
                sent = yield value
            except GeneratorExit:
                source.close()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown into the source, as without us
                raised = error
    except StopIteration as end:
        finished(None, True)
        return end.value
    except GeneratorExit:
        finished(None, False)
        raise
    except BaseException as error:  # goes on to the caller
        finished(error, False)
        raise


def noted_async_function(
    function: Callable[..., AsyncGenerator[Any, Any]],
    opened: Callable[[Any, Any], NotedStream | None],
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """Return an async generator function that yields what `function` yields.

    `opened` is asked at each call, with its arguments, for what notes the chunks.
    """

    @wraps(function)
    async def captured(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        chunks, finished = opened(args, kwargs) or NotedStream(_NO_CHUNKS, _ignored)
        source = function(*args, **kwargs)
        sent: Any = None
        raised: BaseException | None = None
        try:
            while True:
                if raised is not None:
                    error, raised = raised, None
                    value = await source.athrow(error)
                else:
                    value = await source.asend(sent)
                chunks.note(value)
                try:
                    sent = yield value
                except GeneratorExit:
                    await source.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown into the source
                    raised = error
        except StopAsyncIteration:
            finished(None, True)
        except GeneratorExit:
            finished(None, False)
            raise
        except BaseException as error:  # goes on to the caller
            finished(error, False)
            raise

    return captured


def _ignored(_error: BaseException | None, _complete: bool) -> None:
    """Take the end of a generator that is not captured."""
