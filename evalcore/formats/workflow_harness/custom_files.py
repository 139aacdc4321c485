"""Souls and providers in files of their own: `custom/souls/*.yaml` and so on.

They are looked for upward from the workflow file to the root of its repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from evalcore.errors import LoadError
from evalcore.formats.documents import as_json, read_document
from evalcore.formats.test_file.input_messages import InputOrigin, read_named_texts
from evalcore.formats.workflow_harness.parts import read_part
from evalcore.problems import Problems
from evalcore.settings import find_upward
from evalcore.trust.secrets import MARK
from evalcore.wording import describe, shown_path
from evalcore.workflow.definition import Soul, WorkflowPart

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


_ID: Final = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)


class CustomFiles:
    """What stands beside a workflow file in `custom/`; what is wrong there is collected."""

    def __init__(self, folder: Path) -> None:
        self.file_problems: list[Problems] = []
        self._folder = folder

    def with_souls(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return a workflow with the souls that its blocks name and it does not define.

        A soul without a file is left to the check of references.
        """
        inline = raw.get("souls") or {}
        if not isinstance(inline, dict):
            return dict(raw)
        names = [name for name in soul_references(raw) if name not in inline]
        souls = {name: self._soul(name) for name in dict.fromkeys(names)}
        library = {name: soul for name, soul in souls.items() if soul is not None}
        return {**raw, "souls": {**library, **inline}} if library else dict(raw)

    def _soul(self, name: str) -> dict[str, Any] | None:
        """Return the soul of a file: an empty one if it is wrong, None if there is no file."""
        files = len(self.file_problems)
        document = self._document("souls", name)
        if document is None:
            return {} if len(self.file_problems) > files else None
        raw, problems = document
        soul: dict[str, Any] = as_json(raw)
        return {} if read_part(Soul, raw, (), problems) is None else soul

    def provider(self, name: str) -> tuple[dict[str, Any], Problems] | None:
        """Return the entry of a provider's file and where its mistakes are noted.

        None if there is no file, or if it is wrong, which is noted.
        """
        document = self._document("providers", name)
        if document is None:
            return None
        raw, problems = document
        entry = provider_entry(raw, name, problems)
        return None if entry is None else (entry, problems)

    def _document(self, kind: str, name: str) -> tuple[dict[str, Any], Problems] | None:
        """Return a file of `custom/` and where its mistakes are noted."""
        if not _ID.fullmatch(name):
            return None
        names = tuple(f"custom/{kind}/{name}{suffix}" for suffix in (".yaml", ".yml"))
        path = self._find(names)
        if path is None:
            return None
        problems = Problems(shown_path(path), lambda _: None)
        self.file_problems.append(problems)
        try:
            document = read_document(path, shown_path(path))
        except LoadError as error:
            problems.include(error.problems)
            return None
        problems = self.file_problems[-1] = Problems(document.file, document.locate)
        if isinstance(document.value, dict):
            return read_named_texts(
                document.value, InputOrigin(path.parent, (), problems)
            ), problems
        problems.add((), f"a file in custom/{kind} is a mapping, got {describe(document.value)}")
        return None

    def _find(self, names: Sequence[str]) -> Path | None:
        """Return the nearest of the files `custom/…` upward; also where no repository says how far.

        A workflow in `custom/workflows` has them beside that folder.
        """
        path = find_upward(self._folder, names).path
        folder = self._folder.resolve()
        for custom in (folder, folder.parent):
            if path is None and custom.name == "custom":
                path = find_upward(custom.parent, names).path
        return path


def soul_references(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the souls that blocks and their exits name; nothing of what is misshapen."""
    blocks = raw.get("blocks")
    for block in blocks.values() if isinstance(blocks, dict) else ():
        if not isinstance(block, dict):
            continue
        exits = block.get("exits")
        for part in (block, *(exits if isinstance(exits, list) else ())):
            named = part if isinstance(part, dict) else {}
            reference = named.get("soul_ref", named.get("soul"))
            if isinstance(reference, str):
                yield reference
