"""The protocol of OpenAI's embeddings, which most model servers speak.

The texts stand in `parameters.input`; the reply's text is a JSON list of vectors in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.model.exchange import Reply, Request
from evalcore.providers.failures import nonsense, parsed_answer
from evalcore.providers.prices import usage_of
from evalcore.providers.transport import (
    AnswerStream,
    Received,
    ask,
    bearer,
    joined_url,
)

if TYPE_CHECKING:
    import aiohttp

PROTOCOL: Final = "openai-embeddings"
_PATH: Final = "/embeddings"


async def call(session: aiohttp.ClientSession, request: Request) -> Reply:
    """Return the vectors; raise `ProviderError`."""
    answer = _Vectors(request, joined_url(request.endpoint.base_url, _PATH))
    parameters = {key: value for key, value in request.parameters.items() if key != "extra_headers"}
    if "encoding_format" not in request.refused:
        parameters = {"encoding_format": "float", **parameters}
    return await ask(session, answer, {"model": request.model, **parameters}, bearer(request))


class _Vectors(AnswerStream):
    def whole_reply(self, received: Received) -> Reply:
        endpoint, body = self.request.endpoint, received.body
        data = parsed_answer(endpoint, self.url, body, "the answer", received.charset)
        vectors = _vectors(data, len(self.request.parameters.get("input") or ()))
        if vectors is None:
            what = "the answer has no embedding of numbers for each text"
            raise nonsense(endpoint, self.url, what, body)
        self.model, self.usage = str(data.get("model") or ""), usage_of(data.get("usage"))
        return self.whole(orjson.dumps(vectors).decode(), (), received.latency_ms, received.status)


def _vectors(data: Any, count: int) -> list[list[float]] | None:
    """Return the vectors in the order of their texts; None if they are not what was asked for."""
    entries = data.get("data") if isinstance(data, Mapping) else None
    if not isinstance(entries, list) or len(entries) != count:
        return None
    vectors: dict[int, list[float]] = {}
    for position, entry in enumerate(entries):
        vector = entry.get("embedding") if isinstance(entry, Mapping) else None
        if not isinstance(vector, list) or not vector or not all(map(_is_number, vector)):
            return None
        index = entry.get("index")
        vectors[index if isinstance(index, int) else position] = [float(value) for value in vector]
    if set(vectors) != set(range(count)):
        return None
    return [vectors[position] for position in range(count)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
