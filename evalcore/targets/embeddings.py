"""The target `sentence-transformers`: a local model that embeds texts (extra `embeddings`)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic import Field

from evalcore.errors import TargetError
from evalcore.model.evidence import Evidence
from evalcore.targets.work import Answering, TargetOptions, Work

_KIND = "embeddings"
_LOCK = threading.Lock()


class LocalEmbeddingOptions(TargetOptions):
    """Options of a target of kind `sentence-transformers`."""

    model: str = Field(
        default="all-MiniLM-L6-v2",
        min_length=1,
        description="The model's name, or the folder that holds it.",
    )


class LocalEmbeddingTarget(Answering):
    """Embeds texts for the assertion `similar`; answers no case."""

    def __init__(self, options: LocalEmbeddingOptions) -> None:
        self.model = options.model

    takes_time = False

    async def answer(self, work: Work) -> Evidence:  # noqa: ARG002 - the protocol's parameter
        """Raise `TargetError`: it answers no case."""
        raise TargetError(_KIND, "a target 'sentence-transformers' only embeds; use it for similar")

    async def vectors(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Return a vector for each text; raise `TargetError` where the model cannot be loaded."""
        return await asyncio.to_thread(self._vectors, list(texts))

    def _vectors(self, texts: list[str]) -> tuple[tuple[float, ...], ...]:
        with _LOCK:
            try:
                vectors = _loaded(self.model).encode(texts, normalize_embeddings=True)
            except ImportError as error:
                message = f"sentence-transformers is not installed ({error}); install the extra"
                raise TargetError(_KIND, f"{message}: evalcore-pipeline[embeddings]") from error
            except (OSError, ValueError, RuntimeError) as error:
                message = f"the model '{self.model}' cannot be used: {error}"
                raise TargetError(_KIND, " ".join(message.split())[:500]) from error
        return tuple(tuple(float(value) for value in vector) for vector in vectors)


@lru_cache(maxsize=4)
def _loaded(model: str) -> Any:
    """Return the model, loaded once in a process."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(model)
