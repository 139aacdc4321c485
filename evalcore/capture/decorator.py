"""`capture`: a decorator, a call or a context manager that takes samples of real usage.

What is captured is serialised in the caller, by orjson, so that it does not change when the caller
goes on. All else happens in the writing thread.
"""

from __future__ import annotations

import inspect
import json
import random
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import aclosing, closing, nullcontext
from datetime import date, timedelta
from decimal import Decimal
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import orjson

from evalcore.capture.calls import LARGEST_CAPTURE_BYTES, CaptureCall, CaptureSource
from evalcore.capture.writer import PROCESS_WRITER
from evalcore.errors import UsageError

if TYPE_CHECKING:
    from evalcore.storage.store import ObjectStore

F = TypeVar("F", bound=Callable[..., Any])
Redact = Callable[[str], str]
_Begun = Callable[[tuple[Any, ...], dict[str, Any]], "Capturing | None"]
_UNSET: Final[Any] = object()
_POSITIONAL: Final = frozenset(
    {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
)
_OWNERS: Final = (("self",), ("cls",))
MOST_MEMBERS: Final = 20_000
"""Most members of all mappings and lists of a value together."""


class _TooLargeError(Exception):
    """A value is too large, or nested too deeply."""


def serialised(*values: Any) -> bytes:
    """Return values as a JSON list.

    Dataclasses and pydantic models are mappings of their fields, other objects the names of their
    types in `<…>`; no code of such a type runs. Raises `_TooLargeError`.
    """
    if _is_too_large(values):
        raise _TooLargeError
    try:
        data = orjson.dumps(values, _plain, orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a long integer, half of a surrogate pair, nested too deeply for orjson
        try:
            data = json.dumps(values, default=_plain, skipkeys=True).encode()
        except (RecursionError, ValueError):
            raise _TooLargeError from None
    if len(data) > LARGEST_CAPTURE_BYTES:
        raise _TooLargeError
    return data


def _is_too_large(values: tuple[Any, ...]) -> bool:
    """Whether values need not be serialised to tell: this takes a millisecond at most."""
    characters, members = LARGEST_CAPTURE_BYTES, MOST_MEMBERS
    waiting = [*values]
    for value in waiting:  # which grows
        kind = type(value)
        if kind is str:
            characters -= len(value)
        elif kind is dict or kind is list or kind is tuple:
            members -= len(value)
            if members >= 0:
                waiting += value.values() if kind is dict else value
        if characters < 0 or members < 0:
            return True
    return False


def _plain(value: Any) -> Any:
    kind = type(value)
    if issubclass(kind, tuple | set | frozenset):
        return list(value)
    if kind in {timedelta, Decimal, UUID}:
        return str(value)
    if issubclass(kind, float):
        return float.__add__(value, 0.0)
    if issubclass(kind, date):
        return kind.isoformat(value)
    if {"__dataclass_fields__", "__pydantic_fields__"} & kind.__dict__.keys():
        return object.__getattribute__(value, "__dict__")
    return f"<{type.__getattribute__(kind, '__name__')}>"


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
    capturing = Capturing(CaptureSource(dataset, store, redactions), float(sample), metadata)
    if input is not _UNSET:
        capturing.begin((input,), None)
    if output is not _UNSET:
        capturing.output = output
        capturing.end(None)
    return capturing


class Capturing:
    """What `capture` returns: a decorator, or a context manager with an `output` to set.

    Each call of a decorated function is one, too.
    """

    def __init__(self, source: CaptureSource, sample: float, metadata: Any) -> None:
        self.output: Any = None
        self.metadata = metadata
        self._source = source
        self._sample = sample
        # Not the module's generator: a program that seeds it expects its own numbers.
        self._random = random.Random() if 0 < sample < 1 else None  # noqa: S311
        self._input: bytes | None = None
        self._has_arguments = False
        self._chunks: list[bytes] | None = None
        self._size = 0
        self._is_complete = True

    def __call__(self, function: F) -> F:
        """Return the function, captured at a share of its calls; its kind stays."""
        names = _parameter_names(function)
        source = self._source._replace(
            function=f"{function.__module__}.{function.__qualname__}",
            names=names,
            has_owner=names[:1] in _OWNERS,
        )

        def begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Capturing | None:
            if not self._is_sampled():
                return None
            call = Capturing(source, 1.0, self.metadata)
            call.begin(args[1:] if source.has_owner else args, kwargs)
            return None if call._input is None else call

        if inspect.isasyncgenfunction(function):
            wrapper = _async_generator(function, begun)
        elif inspect.isgeneratorfunction(function):
            wrapper = _generator(function, begun)
        elif inspect.iscoroutinefunction(function):
            wrapper = _coroutine(function, begun)
        else:
            wrapper = _plain_function(function, begun)
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

    def begin(self, arguments: tuple[Any, ...], keywords: dict[str, Any] | None) -> None:
        """Take the input as it is now, if this call is sampled; never raises.

        Without `keywords` the one argument is the input itself.
        """
        if not self._is_sampled():
            return
        if PROCESS_WRITER.is_full():
            PROCESS_WRITER.refuse("queue full")
            return
        self._has_arguments = keywords is not None
        values = (*arguments, keywords) if keywords is not None else arguments
        self._input = _taken(values)

    def end(self, error: BaseException | None) -> None:
        """Hand over the input with the output, or with the exception that ended the block.

        Never raises. An exception that ends the process is no answer.
        """
        data, self._input = self._input, None
        is_answer = error is None or issubclass(type(error), Exception)
        is_left = self._chunks is not None and isinstance(error, GeneratorExit)
        if data is None or not (is_answer or is_left):
            return
        failure = None
        if error is not None and is_answer:
            # Not `str(error)`: that is code of the exception's type.
            output = _taken(BaseException.__dict__["args"].__get__(error))
            failure, self._chunks = type(error).__name__, None
        elif self._chunks is not None:
            output = b"[" + b",".join(self._chunks) + b"]"
        else:
            output = _taken((self.output,))
        metadata = b"" if self.metadata is None else _taken((self.metadata,))
        if output is None or metadata is None:
            return
        PROCESS_WRITER.add(
            CaptureCall(
                self._source,
                time.time(),
                data,
                self._has_arguments,
                output,
                failure,
                self._chunks is not None,
                self._is_complete and self._size <= LARGEST_CAPTURE_BYTES,
                metadata,
            )
        )

    def _is_sampled(self) -> bool:
        return self._sample > 0 and (self._random is None or self._random.random() < self._sample)

    def stream(self) -> Capturing:
        """Capture what a generator yields; it is incomplete until `complete` is called."""
        self._chunks, self._is_complete = [], False
        return self

    def complete(self) -> None:
        """Note that the generator has come to its end."""
        self._is_complete = True

    def note(self, chunk: Any) -> None:
        """Note a chunk as it is now, within bounds; never raises."""
        if self._chunks is None or self._size > LARGEST_CAPTURE_BYTES:
            return
        try:
            data = serialised(chunk)
        except Exception:  # noqa: BLE001 - of values of foreign types
            self._size = LARGEST_CAPTURE_BYTES + 1
        else:
            self._size += len(data)
            self._chunks.append(data[1:-1])


def _async_generator(function: Callable[..., Any], begun: _Begun) -> Callable[..., Any]:
    @wraps(function)
    async def captured(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        call = begun(args, kwargs)
        async with aclosing(function(*args, **kwargs)) as chunks:
            with nullcontext() if call is None else call.stream():
                async for chunk in chunks:
                    if call is not None:
                        call.note(chunk)
                    yield chunk
                if call is not None:
                    call.complete()

    return captured


def _generator(function: Callable[..., Any], begun: _Begun) -> Callable[..., Any]:
    @wraps(function)
    def captured(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = begun(args, kwargs)
        with closing(function(*args, **kwargs)) as chunks:
            if call is None:
                return (yield from chunks)
            with call.stream():
                for chunk in chunks:
                    call.note(chunk)
                    yield chunk
                call.complete()

    return captured


def _coroutine(function: Callable[..., Any], begun: _Begun) -> Callable[..., Any]:
    @wraps(function)
    async def captured(*args: Any, **kwargs: Any) -> Any:
        call = begun(args, kwargs)
        if call is None:
            return await function(*args, **kwargs)
        with call:
            call.output = await function(*args, **kwargs)
        return call.output

    return captured


def _plain_function(function: Callable[..., Any], begun: _Begun) -> Callable[..., Any]:
    @wraps(function)
    def captured(*args: Any, **kwargs: Any) -> Any:
        call = begun(args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        with call:
            call.output = function(*args, **kwargs)
        return call.output

    return captured


def _taken(values: tuple[Any, ...]) -> bytes | None:
    """Return values as a JSON list; None, and counted, if they cannot be."""
    try:
        return serialised(*values)
    except _TooLargeError:
        PROCESS_WRITER.refuse("too large")
    # Values of other people's types, some of which refuse everything.
    except Exception:  # noqa: BLE001 - of values of foreign types
        PROCESS_WRITER.refuse("failed")
    return None


def _parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters, as far as they can be read."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(each.name for each in parameters if each.kind in _POSITIONAL)
