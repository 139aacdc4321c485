"""A captured call on its way from the caller to the thread that writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from evalcore.storage.object_store import ObjectStore

WRITTEN: Final = "written"
"""What captures that stand in the store are counted as."""
OWNERS: Final = (("self",), ("cls",))
"""First parameters whose argument is the object of a method, and no input."""


class CaptureCall(NamedTuple):
    """One captured call, as the caller left it: bounded copies, nothing redacted yet.

    `names` are those of the positional arguments. `error` is the type's name and the arguments of
    an exception; `chunks` says that the output is what a generator yielded.
    """

    dataset: str
    store: str | ObjectStore | None
    redact: tuple[Any, ...]
    function: str
    names: tuple[str, ...]
    moment: float
    arguments: Any
    keywords: Any
    output: Any = None
    error: tuple[str, Any] | None = None
    chunks: bool = False
    complete: bool = True
    metadata: Any = None
