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
from evalcore.formats.workflow_harness.custom_providers import provider_entry
from evalcore.formats.workflow_harness.parts import read_part
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import describe, shown_path
from evalcore.settings import find_upward
from evalcore.workflow.definition import Soul

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
