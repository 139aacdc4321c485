"""A target asked once, its calls made without retries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Complete, Reply, Request
from evalcore.model.suite import Case
from evalcore.model.target import DEFAULT_VARIANT, Target, Variant
from evalcore.providers.registry import open_session, send
from evalcore.targets.registry import build, merged_options, options_model
from evalcore.targets.work import Work, messages_of, prompt_of
from evalcore.trust.imports import ImportPolicy


async def _once(request: Request) -> Reply:
    async with open_session() as session:
        return await send(session, request)


def merge_options(target: Target, variant: Variant = DEFAULT_VARIANT) -> BaseModel:
    """Return the checked options of a target, the variant's configuration laid over them."""
    return options_model(target.kind).model_validate(merged_options(target, variant))


def answer(
    target: Target,
    case: Case | str = "hello you",
    *,
    variant: Variant = DEFAULT_VARIANT,
    folder: Path = Path(),
    environment: Mapping[str, str] | None = None,
    mode: str = "live",
    complete: Complete = _once,
) -> Evidence:
    """Return the target's evidence for one case."""
    runnable = build(target, variant, folder=folder, environment=environment or {})
    one = case if isinstance(case, Case) else Case("c1", case)
    messages = messages_of(one.input)
    work = Work(
        one,
        variant,
        0,
        0,
        prompt_of(messages),
        messages,
        folder,
        ImportPolicy(),
        mode=mode,
        complete=complete,
    )
    return asyncio.run(runnable.answer(work))


def target_of(kind: str, name: str = "mine", **options: Any) -> Target:
    """Return a target with these options."""
    return Target(name, kind, options)
