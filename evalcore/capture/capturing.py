"""`capture`: a decorator, a call or a context manager that takes samples of real usage."""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Iterable
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from evalcore.capture.calls import CaptureCall, CaptureSource
from evalcore.capture.snapshot import SnapshotError, call_snapshot, snapshot
from evalcore.capture.streams import Chunks, NotedStream, noted_async_function, noted_generator
from evalcore.capture.writer import PROCESS_WRITER
from evalcore.errors import UsageError

if TYPE_CHECKING:
    from evalcore.storage.store import ObjectStore

F = TypeVar("F", bound=Callable[..., Any])
Redact = Callable[[str], str]
# A copy of the input, whether it is the arguments of a call, and its size.
_CallInput = tuple[Any, bool, int]
_UNSET: Final[Any] = object()
_POSITIONAL: Final = frozenset(
    {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
)


def capture(
    dataset: str,
    *,
    sample: float = 1.0,
    redact: Redact | Iterable[Redact] = (),
    store: str | ObjectStore | None = None,
    input: Any = _UNSET,  # noqa: A002 - the word of the case
    output: Any = _UNSET,
    metadata: Any = None,
) -> Capturing:
    """Capture a share of real usage into the pending captures of a dataset.

    As a decorator it captures the arguments and the answer of a function (sync, async, generator,
    async generator). With `input` it is a context manager whose `output` is captured at the end;
    with `input` and `output` it captures at once. `sample` is the share of calls, 0 to 1. `redact`
    are functions from text to text, beside the built-in redaction of keys and personal data.
    `store` is an address, by default the configured one, read when the first capture is written.

    What is captured is written by a thread and dropped when that cannot keep up: the caller never
    waits, and sees no error of it. Raises `UsageError` for a dataset's name, a share or a `redact`
    that cannot work.
    """
    redactions = (redact,) if callable(redact) else tuple(redact)
    if not isinstance(dataset, str) or not dataset.strip() or "@" in dataset:
        raise UsageError(f"capture: dataset is a name such as 'support', not {dataset!r}")
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 <= sample <= 1:
        raise UsageError(f"capture: sample is a share from 0 to 1, not {sample!r}")
    if not all(map(callable, redactions)):
        raise UsageError("capture: redact is a function from text to text, or several of them")
    capturing = Capturing(dataset, float(sample), redactions, store, metadata)
    capturing.begin(input)
    if output is not _UNSET:
        capturing.output = output
        capturing.end(None)
    return capturing


class Capturing:
    """What `capture` returns: a decorator, or a context manager with an `output` to set."""

    def __init__(
        self,
        dataset: str,
        sample: float,
        redact: tuple[Redact, ...],
        store: str | ObjectStore | None,
        metadata: Any,
    ) -> None:
        self.output: Any = None
        self.metadata = metadata
        self._source = CaptureSource(dataset, store, redact)
        self._sample = sample
        # Not the module's generator: a program that seeds it expects its own numbers.
        self._random = random.Random() if 0 < sample < 1 else None  # noqa: S311
        self._input: _CallInput | None = None

    def __call__(self, function: F) -> F:
        """Return the function, captured at a share of its calls; its kind stays."""
        source = self._source._replace(
            function=f"{function.__module__}.{function.__qualname__}",
            names=_parameter_names(function),
        )
        if inspect.isasyncgenfunction(function):
            wrapper = noted_async_function(function, partial(self._stream, source))
        elif inspect.isgeneratorfunction(function):
            wrapper = self._generator(function, source)
        elif inspect.iscoroutinefunction(function):
            wrapper = self._coroutine(function, source)
        else:
            wrapper = self._plain(function, source)
        return wrapper  # type: ignore[return-value]  # of the function's own signature

    def __enter__(self) -> Capturing:
        """Begin; set `output` before the end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Capture the input with the output, or with the exception, which goes on."""
        self.end(error)

    async def __aenter__(self) -> Capturing:
        """Begin, as `with` does."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Capture, as `with` does."""
        self.end(error)

    def begin(self, value: Any) -> None:
        """Take the input as it is now, if this call is sampled."""
        if value is not _UNSET:
            self._input = self._begin(value, None)

    def end(self, error: BaseException | None) -> None:
        """Hand over the input with the output, or with the exception that ended the block."""
        call_input, self._input = self._input, None
        if call_input is not None:
            self._end(self._source, call_input, self.output, error)

    def _begin(self, arguments: Any, keywords: dict[str, Any] | None) -> _CallInput | None:
        """Return a copy of a call's input; None if it is not sampled, or cannot be copied."""
        if self._random is not None:
            if self._random.random() >= self._sample:
                return None
        elif not self._sample:
            return None
        if PROCESS_WRITER.is_full():
            PROCESS_WRITER.refuse("queue full")
            return None
        try:
            if keywords is not None:
                copy, size = call_snapshot(arguments, keywords)
            else:
                copy, size = snapshot(arguments)
            return copy, keywords is not None, size
        except SnapshotError:
            PROCESS_WRITER.refuse("too large")
        # Values of other people's types, some of which refuse everything.
        except Exception:  # noqa: BLE001 - of values of foreign types
            PROCESS_WRITER.refuse("failed")
        return None

    def _end(
        self,
        source: CaptureSource,
        call_input: _CallInput,
        output: Any,
        error: BaseException | None = None,
    ) -> None:
        """Hand over a call; never raises. An exception that ends the process is no answer."""
        try:
            copy, has_arguments, size = call_input
            moment, metadata, failure = time.time(), self.metadata, None
            is_stream, complete = type(output) is Chunks, True
            if error is not None:
                if _is_an_end(error):
                    return
                # Not `str(error)`: that is code of the exception's type.
                parts, output_size = snapshot(BaseException.__dict__["args"].__get__(error))
                failure, output, is_stream = (type(error).__name__, parts), None, False
            elif is_stream:
                complete, output_size, output = output.complete, output.size, output.values
            else:
                output, output_size = snapshot(output)
            if metadata is not None:
                metadata = snapshot(metadata)[0]
            size += output_size
            # fmt: off
            fields = (source, moment, copy, has_arguments, output, failure, is_stream, complete,
                      metadata, size)
            # fmt: on
            # As `CaptureCall(…)`, which would be a call of Python.
            PROCESS_WRITER.add(tuple.__new__(CaptureCall, fields))
        except SnapshotError:
            PROCESS_WRITER.refuse("too large")
        # The caller's function has answered: nothing of capturing may change that.
        except Exception:  # noqa: BLE001 - the caller has its answer
            PROCESS_WRITER.refuse("failed")

    def _plain(self, function: Callable[..., Any], source: CaptureSource) -> Any:
        first = int(source.has_owner)

        @wraps(function)
        def captured(*args: Any, **kwargs: Any) -> Any:
            call_input = self._begin(args[first:], kwargs)
            if call_input is None:
                return function(*args, **kwargs)
            try:
                answer = function(*args, **kwargs)
            except BaseException as error:  # goes on to the caller
                self._end(source, call_input, None, error)
                raise
            self._end(source, call_input, answer)
            return answer

        return captured

    def _coroutine(self, function: Callable[..., Any], source: CaptureSource) -> Any:
        first = int(source.has_owner)

        @wraps(function)
        async def captured(*args: Any, **kwargs: Any) -> Any:
            call_input = self._begin(args[first:], kwargs)
            if call_input is None:
                return await function(*args, **kwargs)
            try:
                answer = await function(*args, **kwargs)
            except BaseException as error:  # goes on to the caller
                self._end(source, call_input, None, error)
                raise
            self._end(source, call_input, answer)
            return answer

        return captured

    def _generator(self, function: Callable[..., Any], source: CaptureSource) -> Any:
        @wraps(function)
        def captured(*args: Any, **kwargs: Any) -> Any:
            stream = self._stream(source, args, kwargs)
            generator = function(*args, **kwargs)
            return (yield from generator if stream is None else noted_generator(generator, *stream))

        return captured

    def _stream(self, source: CaptureSource, args: Any, kwargs: Any) -> NotedStream | None:
        """Return what notes the chunks of one call, and its end; None if it is not captured."""
        call_input = self._begin(args[int(source.has_owner) :], kwargs)
        if call_input is None:
            return None
        chunks = Chunks()

        def finished(error: BaseException | None, complete: bool) -> None:
            chunks.complete = complete and not chunks.overflow
            self._end(source, call_input, chunks, error)

        return NotedStream(chunks, finished)


def _is_an_end(error: BaseException | None) -> bool:
    return error is not None and not issubclass(type(error), Exception)


def _parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters, as far as they can be read."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(each.name for each in parameters if each.kind in _POSITIONAL)
