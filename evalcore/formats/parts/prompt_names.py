"""Whether a prompt that a file writes is the name of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from evalcore.targets.registry import MODEL_KINDS

_SUFFIXES: Final = (".md", ".markdown", ".txt", ".prompt", ".j2", ".tmpl")
_SENT_TEXTS: Final = ("system_prompt", "prompt_template")
_LONGEST: Final = 500


def names_file(written: str) -> bool:
    """Whether a text names a file: `file://…`, or one line that ends or begins as a path does."""
    if written.startswith("file://"):
        return True
    if "\n" in written or "{{" in written or len(written) > _LONGEST:
        return False
    if written.startswith(("./", "../", "/")):
        return True
    return " " not in written and written.lower().endswith(_SUFFIXES)


def unread_prompts(kind: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each prompt of a model that reads as the name of a file."""
    for name in _SENT_TEXTS if kind in MODEL_KINDS else ():
        written = options.get(name)
        if isinstance(written, str) and names_file(written):
            yield (
                f"`{name}` is sent as it stands, no file is read: '{written}'. Write the prompt "
                "itself, of several lines after `|`"
            )
