"""A captured call on its way from the caller to the thread that writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from evalcore.storage.store import ObjectStore

WRITTEN: Final = "written"
"""What captures that stand in the store are counted as."""
_OWNERS: Final = (("self",), ("cls",))


class CaptureSource(NamedTuple):
    """Where captures come from and where they go: the same for all calls of a function.

    `names` are those of its positional parameters.
    """

    dataset: str
    store: str | ObjectStore | None
    redact: tuple[Any, ...]
    function: str = ""
    names: tuple[str, ...] = ()

    @property
    def has_owner(self) -> bool:
        """Whether the first argument is the object of a method, and no input."""
        return self.names[:1] in _OWNERS


class CaptureCall(NamedTuple):
    """One captured call, as the caller left it: bounded copies, nothing redacted yet.

    Each value is what `snapshot` makes. With `has_arguments` the input is the arguments, without
    the object of a method, and the keywords of a call; else it is one value. `error` is the type's
    name and the arguments of an exception; `chunks` says that the output is what a generator
    yielded. `size` is about the number of bytes that the call keeps from being freed.
    """

    source: CaptureSource
    moment: float
    input: Any
    has_arguments: bool
    output: Any = None
    error: tuple[str, Any] | None = None
    chunks: bool = False
    complete: bool = True
    metadata: Any = None
    size: int = 0
