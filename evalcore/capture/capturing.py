"""`capture`: a decorator, a call or a context manager that takes samples of real usage."""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Iterable
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from evalcore.capture.calls import OWNERS, CaptureCall
from evalcore.capture.snapshot import SnapshotError, snapshot
from evalcore.capture.streams import Chunks, Finished, noted_async_function, noted_generator
from evalcore.capture.writer import PROCESS_WRITER
from evalcore.errors import UsageError

if TYPE_CHECKING:
    from evalcore.storage.object_store import ObjectStore

F = TypeVar("F", bound=Callable[..., Any])
Redact = Callable[[str], str]
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
        self.dataset = dataset
        self.output: Any = None
        self.metadata = metadata
        self._sample, self._redact, self._store = sample, redact, store
        # Not the module's generator: a program that seeds it expects its own numbers.
        self._random = random.Random() if 0 < sample < 1 else None  # noqa: S311
        self._input: Any = _UNSET

    def __call__(self, function: F) -> F:
        """Return the function, captured at a share of its calls; its kind stays."""
        names = _parameter_names(function)
        label = f"{function.__module__}.{function.__qualname__}"
        if inspect.isasyncgenfunction(function):
            wrapper = noted_async_function(function, partial(self._stream, label, names))
        elif inspect.isgeneratorfunction(function):
            wrapper = self._generator(function, label, names)
        elif inspect.iscoroutinefunction(function):
            wrapper = self._coroutine(function, label, names)
        else:
            wrapper = self._plain(function, label, names)
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
        if value is not _UNSET and self._is_sampled():
            self._input = _copied(value)

    def end(self, error: BaseException | None) -> None:
        """Hand over the input with the output, or with the exception that ended the block."""
        arguments, self._input = self._input, _UNSET
        if arguments is not _UNSET:
            self._add("", (), arguments, None, self.output, error)

    def _is_sampled(self) -> bool:
        return self._sample >= 1 or (
            self._random is not None and self._random.random() < self._sample
        )

    def _add(
        self,
        label: str,
        names: tuple[str, ...],
        arguments: Any,
        keywords: Any,
        output: Any = None,
        error: BaseException | None = None,
    ) -> None:
        """Hand over a call; never raises. An exception that ends the process is no answer."""
        if arguments is _REFUSED or keywords is _REFUSED or _is_an_end(error):
            return
        try:
            call = CaptureCall(
                self.dataset,
                self._store,
                self._redact,
                label,
                names,
                time.time(),
                arguments,
                keywords,
                *_outcome(output, error),
                metadata=None if self.metadata is None else snapshot(self.metadata),
            )
            PROCESS_WRITER.add(call)
        except SnapshotError:
            PROCESS_WRITER.refuse("too large")
        # The caller's function has answered: nothing of capturing may change that.
        except Exception:  # noqa: BLE001 - the caller has its answer
            PROCESS_WRITER.refuse("failed")

    def _plain(self, function: Callable[..., Any], label: str, names: tuple[str, ...]) -> Any:
        @wraps(function)
        def captured(*args: Any, **kwargs: Any) -> Any:
            if not self._is_sampled():
                return function(*args, **kwargs)
            arguments, keywords = _copied_arguments(args, names), _copied(kwargs)
            try:
                answer = function(*args, **kwargs)
            except BaseException as error:  # goes on to the caller
                self._add(label, names, arguments, keywords, error=error)
                raise
            self._add(label, names, arguments, keywords, answer)
            return answer

        return captured

    def _coroutine(self, function: Callable[..., Any], label: str, names: tuple[str, ...]) -> Any:
        @wraps(function)
        async def captured(*args: Any, **kwargs: Any) -> Any:
            if not self._is_sampled():
                return await function(*args, **kwargs)
            arguments, keywords = _copied_arguments(args, names), _copied(kwargs)
            try:
                answer = await function(*args, **kwargs)
            except BaseException as error:  # goes on to the caller
                self._add(label, names, arguments, keywords, error=error)
                raise
            self._add(label, names, arguments, keywords, answer)
            return answer

        return captured

    def _generator(self, function: Callable[..., Any], label: str, names: tuple[str, ...]) -> Any:
        @wraps(function)
        def captured(*args: Any, **kwargs: Any) -> Any:
            stream = self._stream(label, names, args, kwargs)
            source = function(*args, **kwargs)
            return (yield from source if stream is None else noted_generator(source, *stream))

        return captured

    def _stream(
        self, label: str, names: tuple[str, ...], args: Any, kwargs: Any
    ) -> tuple[Chunks, Finished] | None:
        """Return what notes the chunks of one call, and its end; None if it is not sampled."""
        if not self._is_sampled():
            return None
        arguments, keywords = _copied_arguments(args, names), _copied(kwargs)
        chunks = Chunks()

        def finished(error: BaseException | None, complete: bool) -> None:
            output = _Yielded(chunks.values, complete and not chunks.overflow)
            self._add(label, names, arguments, keywords, output, error)

        return chunks, finished


class _Yielded:
    """The chunks of a generator, as the output of its call."""

    __slots__ = ("complete", "values")

    def __init__(self, values: list[Any], complete: bool) -> None:
        self.values = values
        self.complete = complete


_REFUSED: Final[Any] = object()


def _copied(value: Any) -> Any:
    """Return a snapshot; `_REFUSED`, and count it, where there cannot be one."""
    if PROCESS_WRITER.is_full():
        PROCESS_WRITER.refuse("queue full")
        return _REFUSED
    try:
        return snapshot(value)
    except SnapshotError:
        PROCESS_WRITER.refuse("too large")
    # Values of other people's types, some of which refuse everything.
    except Exception:  # noqa: BLE001 - of values of foreign types
        PROCESS_WRITER.refuse("failed")
    return _REFUSED


def _copied_arguments(arguments: tuple[Any, ...], names: tuple[str, ...]) -> Any:
    """Return a snapshot of positional arguments, without the object of a method."""
    return _copied(arguments[1:] if names[:1] in OWNERS else arguments)


def _outcome(
    output: Any, error: BaseException | None
) -> tuple[Any, tuple[str, Any] | None, bool, bool]:
    """Return output, error, whether the output is chunks, and whether it is complete."""
    if error is not None:
        # Not `str(error)`: that is code of the exception's type.
        arguments = BaseException.__dict__["args"].__get__(error)
        return None, (type(error).__name__, snapshot(arguments)), False, True
    if type(output) is _Yielded:
        return output.values, None, True, output.complete
    return snapshot(output), None, False, True


def _is_an_end(error: BaseException | None) -> bool:
    return error is not None and not issubclass(type(error), Exception)


def _parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters, as far as they can be read."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(each.name for each in parameters if each.kind in _POSITIONAL)
