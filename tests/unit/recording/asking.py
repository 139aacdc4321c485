"""Requests, replies and recorders for the tests of recordings."""

from __future__ import annotations

import asyncio
from typing import Any

from evalcore.model.exchange import Endpoint, ProviderError, Reply, Request
from evalcore.model.mode import Mode
from evalcore.recording.content import Question
from evalcore.recording.recorder import Recorder
from evalcore.recording.redaction import Redaction
from evalcore.redaction.redactor import Redactor
from evalcore.storage.store import ObjectStore

KEY = "key-of-the-tests-1"
ENDPOINT = Endpoint("openai", "acme", "http://127.0.0.1:1/v1", api_key=KEY)
RUN = "20260518T100000Z-0a1b2c"
LATER_RUN = "20260518T110000Z-0a1b2c"


def ask(text: str = "Where is my order?", **more: Any) -> Request:
    """Return a request with one message."""
    given = {"endpoint": ENDPOINT, "model": "small", "parameters": {"temperature": 0}}
    return Request(messages=({"role": "user", "content": text},), **{**given, **more})


def recorder(store: ObjectStore, mode: str, run: str | None = None, *patterns: str) -> Recorder:
    """Return a recorder that does not look at the environment."""
    return Recorder(store, Mode(mode), Redaction(Redactor((), patterns)), run=run)


def find(
    found_by: Recorder, request: Request, iteration: int = 0, invocation: int = 0
) -> Reply | None:
    """Look a request up."""
    question = Question.of(request, iteration=iteration, invocation=invocation)
    return asyncio.run(found_by.find(request, question))


def save(
    saved_by: Recorder,
    request: Request,
    outcome: Reply | ProviderError,
    iteration: int = 0,
    invocation: int = 0,
) -> Reply:
    """Record an outcome."""
    question = Question.of(request, iteration=iteration, invocation=invocation)
    return asyncio.run(saved_by.save(request, question, outcome))
