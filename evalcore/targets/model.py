"""The targets `openai` and `anthropic`: a model answers."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from evalcore.errors import EvalError, TargetError
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Request
from evalcore.providers.chat import ChatModel, ChatOptions, chat_model
from evalcore.targets.answers import evidence_of
from evalcore.targets.options import BuildContext
from evalcore.targets.templates import templated
from evalcore.targets.work import Answering, Work
from evalcore.trust.files import repository_root, resolve_inside, with_attached

__all__ = ["AnthropicTarget", "ChatOptions", "OpenAITarget"]

EMBEDDINGS: Final = "openai-embeddings"
_LARGEST_FILE: Final = 20 << 20


class _ChatTarget(Answering):
    """Asks the model once per item with the case's messages; tools are not run."""

    protocol: str

    def __init__(self, options: ChatOptions, context: BuildContext) -> None:
        self._options = options
        self.chat: ChatModel = chat_model(
            self.protocol,
            context.name,
            options,
            context.environment,
            context.secret_headers(),
            context.address_values,
        )
        self._context = context

    async def answer(self, work: Work) -> Evidence:
        """Return the model's answer.

        Raise `ProviderError` after the last retry, `TargetError` for a secret that is not set or a
        file that cannot be read.
        """
        self._context.check(work.mode)
        messages = templated(work, self._options.prompt_template)
        read = partial(_with_file, work.folder)
        request = self.chat.request(with_attached(messages, read, ("file", "image")))
        if not request.messages:
            raise TargetError("input", "the case has no input to ask the model")
        return evidence_of(await work.complete(request), request)


class OpenAITarget(_ChatTarget):
    """A model behind OpenAI's chat completions, or a server that speaks them."""

    protocol = "openai"

    def embedding_request(self, texts: Sequence[str], mode: str, model: str | None) -> Request:
        """Return the request for the texts' embeddings by `model`, by default the target's own.

        Raise `TargetError` for a secret that is not set.
        """
        self._context.check(mode)
        return Request(
            endpoint=replace(self.chat.endpoint, protocol=EMBEDDINGS),
            model=model or self.chat.model,
            parameters={"input": list(texts)},
            attempt_timeout_s=self.chat.attempt_timeout_s,
        )


class AnthropicTarget(_ChatTarget):
    """A model behind Anthropic's messages."""

    protocol = "anthropic"


def _with_file(folder: Path, segment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an image or file segment with what its name stands for."""
    try:
        path = resolve_inside(repository_root(folder), folder, name)
        if path.stat().st_size > _LARGEST_FILE:
            raise TargetError("input", f"file {name!r} is larger than {_LARGEST_FILE >> 20} MiB")
        data = path.read_bytes()
    except TargetError:
        raise
    except (EvalError, OSError) as error:
        raise TargetError("input", str(error)) from error
    media = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if segment["type"] == "image":
        return {"type": "image", "value": _data_uri(media, data)}
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return {"type": "file", "name": path.name, "value": _data_uri(media, data)}
    return {"type": "text", "value": f'<file name="{name}">\n{text}\n</file>'}


def _data_uri(media: str, data: bytes) -> str:
    return f"data:{media};base64,{base64.b64encode(data).decode()}"
