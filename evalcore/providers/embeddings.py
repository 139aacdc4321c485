"""The protocol of OpenAI's embeddings, which most model servers speak.

The texts stand in `parameters.input`; the reply's text is a JSON list of vectors in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from pydantic import BaseModel, Field, FiniteFloat

from evalcore.model.exchange import Reply, Request
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
    def take_whole(self, data: Any, received: Received) -> Reply:
        vectors = _vectors(data, len(self.request.parameters.get("input") or ()))
        self.model, self.usage = str(data.get("model") or ""), usage_of(data.get("usage"))
        return self.whole(orjson.dumps(vectors).decode(), (), received.latency_ms, received.status)


class _Embedding(BaseModel, strict=True, hide_input_in_errors=True):
    embedding: Annotated[list[FiniteFloat], Field(min_length=1)]
    index: int | None = None


class _Embeddings(BaseModel, strict=True, hide_input_in_errors=True):
    data: list[_Embedding]


def _vectors(data: Any, count: int) -> list[list[float]]:
    """Return the vectors in the order of their texts; raise `ValueError` for another shape."""
    entries = _Embeddings.model_validate(data).data
    positions = [at if entry.index is None else entry.index for at, entry in enumerate(entries)]
    if sorted(positions) != list(range(count)):
        raise ValueError("not an embedding of numbers for each text")
    return [entries[positions.index(at)].embedding for at in range(count)]
