"""The spellings in which a secret turns up: as it is, and encoded for where it was put."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from evalcore.redaction.names import is_telling

_SHORTEST_ENCODED: Final = 8
_SHORTEST_CORE: Final = 5
_UNCHANGED: Final = re.compile(r"[A-Za-z0-9_]+")


def spellings_of(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return every spelling of the secrets, longest first."""
    spelled = {spelling for secret in secrets for spelling in _spellings(secret)}
    return tuple(sorted(spelled, key=lambda spelling: (-len(spelling), spelling)))


def probes_of(spellings: Iterable[str]) -> tuple[str, ...]:
    """Return texts of which one at least stands in each of the spellings; as few as may be.

    Of each the longest part that no escaping changes, so that most spellings share theirs.
    """
    cores: list[str] = []
    for spelling in sorted(spellings, key=lambda text: len(_core(text))):
        core = _core(spelling)
        if not any(shorter in spelling for shorter in cores):
            cores.append(core)
    return tuple(cores)


def _core(text: str) -> str:
    longest = max(_UNCHANGED.findall(text), key=len, default="")
    return longest if len(longest) >= _SHORTEST_CORE else text


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield from _encoded(secret)
    # A key in a file has lines, which are logged line by line.
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= 2 * _SHORTEST_ENCODED)
    # Of `Bearer abc…` a server repeats the second word alone.
    for part in secret.replace(";", " ").replace(",", " ").split():
        if part != secret and len(part) >= _SHORTEST_ENCODED and _is_key(part):
            yield part
            yield from _encoded(part)


def _is_key(part: str) -> bool:
    return is_telling(part) and any(map(str.isdigit, part))


def _encoded(secret: str) -> Iterator[str]:
    # Of a short word the encodings are ordinary texts as well.
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield html.escape(secret)
    yield html.escape(secret, quote=False)
    quoted = shlex.quote(secret)
    yield quoted[1:-1] if quoted.startswith("'") else quoted
    data = secret.encode("utf-8", "surrogatepass")
    for percent in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield percent
        yield _lower_escapes(percent)
    if len(data) >= _SHORTEST_ENCODED:
        yield data.hex()
        yield data.hex().upper()
        yield from _base64(data)


def _lower_escapes(text: str) -> str:
    head, *rest = text.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])


def _base64(data: bytes) -> Iterator[str]:
    """Yield what the bytes are in Base64 text, wherever in the encoded text they begin."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + data).decode()
        # The characters at both ends also hold bits of what stands beside the secret.
        start = -(-8 * shift // 6)
        whole = (8 * (shift + len(data))) // 6
        inner = encoded[start:whole]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
