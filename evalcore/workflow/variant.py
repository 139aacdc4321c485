"""A variant laid over a workflow: parts of it changed, or the model of every soul."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PARTS: Final = frozenset({"souls", "blocks", "workflow", "limits"})
_SOUL_NAMES: Final = {"model": "model_name"}
SOUL_KEYS: Final = frozenset(
    {
        "model",
        "model_name",
        "provider",
        "system_prompt",
        "temperature",
        "max_tokens",
        "top_p",
        "seed",
        "stop",
        "frequency_penalty",
        "presence_penalty",
        "reasoning_effort",
    }
)
DEFAULT_SOUL: Final = "default"


def apply_variant(raw: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return the workflow with the variant laid over it.

    `souls`, `blocks`, `workflow` and `limits` are merged key by key, lists and values replaced; a
    soul's field (`model`, `provider`, `system_prompt`, `temperature`, …) is set in every soul.
    """
    merged = dict(raw)
    for key in PARTS & set(variant):
        merged[key] = merge(raw.get(key) or {}, variant[key])
    fields = {
        _SOUL_NAMES.get(key, key): value for key, value in variant.items() if key in SOUL_KEYS
    }
    if fields:
        souls = {DEFAULT_SOUL: {}, **(merged.get("souls") or {})}
        merged["souls"] = {name: {**soul, **fields} for name, soul in souls.items()}
    return merged


def soul_fields(variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a variant that is meant for every soul, of sub-workflows too."""
    return {key: value for key, value in variant.items() if key in SOUL_KEYS}


def merge(base: Any, over: Any) -> Any:
    """Return `over` laid over `base`: mappings key by key, anything else replaced."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return over
    return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}}
