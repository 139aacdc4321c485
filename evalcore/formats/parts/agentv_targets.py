"""Targets as AgentV's `targets.yaml` writes them → targets of ours (docs/reference/targets.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

# Providers with the interface of OpenAI: the address, as it is called for one that is written.
_ADDRESSES: Final = {
    "azure": "{endpoint}/openai/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "openai": "{endpoint}",
    "openrouter": "https://openrouter.ai/api/v1",
}
_MODELS: Final = frozenset({*_ADDRESSES, "anthropic"})
_NAMES: Final = {
    "api_version": "version",
    "deployment": "model",
    "endpoint": "base_url",
    "max_output_tokens": "max_tokens",
    "resource": "base_url",
}
_NO_EFFECT: Final = (
    "api_format",
    "log_dir",
    "log_directory",
    "log_format",
    "log_output_format",
    "max_retries",
    "retry_backoff_factor",
    "retry_initial_delay_ms",
    "retry_max_delay_ms",
    "retry_status_codes",
    "stream_log",
    "thinking_budget",
    "version",
)
_AGENTS: Final = frozenset(
    {
        *("claude", "claude-cli", "claude-code", "claude-sdk", "codex", "codex-cli"),
        *("copilot", "copilot-cli", "copilot-log", "copilot-sdk", "pi", "pi-agent-sdk"),
        *("pi-cli", "pi-coding-agent", "vscode", "vscode-insiders"),
    }
)


class TranslatedTarget(NamedTuple):
    """An entry in our words, and the keys in it that have no effect here."""

    raw: Mapping[str, Any]
    without_effect: tuple[str, ...] = ()


def translated(raw: Mapping[str, Any]) -> TranslatedTarget:
    """Return an entry of `targets:` with AgentV's names replaced by ours.

    `azure`, `gemini` and `openrouter` are `openai` at their address. An entry that has none of
    AgentV's names is returned as it is.
    """
    if "judge_target" in raw and "grader_target" not in raw:
        raw = _renamed(raw, {"judge_target": "grader_target"})
    provider = raw.get("provider")
    if provider not in _MODELS and "use_target" not in raw:
        return TranslatedTarget(raw)
    without_effect = tuple(key for key in raw if _NAMES.get(key, key) in _NO_EFFECT)
    entry = {key: value for key, value in raw.items() if key not in without_effect}
    entry = _renamed(entry, {old: new for old, new in _NAMES.items() if new not in entry})
    address = _ADDRESSES.get(str(provider))
    if address is None:
        return TranslatedTarget(entry, without_effect)
    entry["provider"] = "openai"
    endpoint = entry.get("base_url")
    if "{endpoint}" not in address:
        entry.setdefault("base_url", address)
    elif isinstance(endpoint, str) and "/openai/" not in endpoint:
        entry["base_url"] = address.replace("{endpoint}", endpoint.rstrip("/"))
    return TranslatedTarget(entry, without_effect)


def own_name(key: str | int) -> str | int:
    """Return what an option of AgentV's is called here."""
    return _NAMES.get(key, key) if isinstance(key, str) else key


def agent_hint(provider: str) -> str:
    """Return what to write in place of a coding agent of AgentV's; "" for any other provider."""
    if provider not in _AGENTS:
        return ""
    return (
        f"AgentV's agent '{provider}' is not built in; run its command line: "
        "`provider: cli` with `command: … {PROMPT_FILE} …`"
    )


def _renamed(entry: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in entry.items()}
