"""Providers in files of their own, `custom/providers/<id>.yaml` → entries of `targets.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from evalcore.formats.workflow_harness.parts import read_part
from evalcore.mistakes.problems import Problems
from evalcore.trust.secrets import MARK
from evalcore.workflow.definition import WorkflowPart

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# What is not here is `openai` at its `base_url`.
_KINDS: Final = {
    "anthropic": "anthropic",
    "azure_openai": "azure",
    "google": "gemini",
    "openai": "openai",
    "openrouter": "openrouter",
}
_ADDRESSES: Final = {
    "cohere": "https://api.cohere.ai/compatibility/v1",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "ollama": "http://localhost:11434/v1",
    "together": "https://api.together.xyz/v1",
}
_ELSEWHERE: Final = ("aws_bedrock",)


class ProviderManifest(WorkflowPart):
    """A file `custom/providers/<id>.yaml`; what an application notes of it has no effect.

    Files of earlier versions have no `id`: it is the name of the file.
    """

    id: str | None = None
    kind: str | None = None
    name: str | None = None
    type: str | None = None
    api_key: str | None = None
    base_url: str | None = None
    is_active: bool = True
    status: str | None = None
    models: list[str] | None = None
    created_at: Any = None
    updated_at: Any = None
    last_status_check: Any = None


def provider_entry(raw: Mapping[str, Any], name: str, problems: Problems) -> dict[str, Any] | None:
    """Return the entry of `targets.yaml` that a file stands for; None, noted, if it is wrong.

    `${NAME}` becomes `${{ NAME }}`, which is read when the provider is asked.
    """
    manifest = read_part(ProviderManifest, raw, (), problems)
    if manifest is None:
        return None
    if manifest.id not in (None, name):
        problems.add(("id",), f"is '{manifest.id}', the file is that of '{name}'")
    if not manifest.is_active:
        problems.add(("is_active",), f"provider '{name}' is switched off; set it to true")
    kind = (manifest.type or name).lower()
    if kind in _ELSEWHERE:
        advice = "name a 'base_url' that speaks OpenAI's, and 'type: openai'"
        problems.add(("type",), f"'{kind}' has a protocol of its own; {advice}")
        return None
    address = manifest.base_url or _ADDRESSES.get(kind)
    if address is None and kind not in _KINDS:
        problems.add((), f"a provider of type '{kind}' needs 'base_url'")
        return None
    entry: dict[str, Any] = {"name": name, "provider": _KINDS.get(kind, "openai")}
    if address is not None:
        is_bare = kind == "ollama" and not address.rstrip("/").endswith("/v1")
        entry["base_url"] = f"{address.rstrip('/')}/v1" if is_bare else address
    if manifest.api_key is not None:
        key = manifest.api_key
        entry["api_key"] = key if MARK in key else _VARIABLE.sub(r"${{ \1 }}", key)
    return entry
