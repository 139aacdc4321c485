"""Tools that come with the project, and the names by which other programs know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.scripts.fetch_tools import FETCH, FetchTool
from evalcore.scripts.file_tools import FILES, FileTool
from evalcore.scripts.iteration import Tool
from evalcore.scripts.model_tools import ModelTool
from evalcore.scripts.program_tools import PROGRAMS, ProgramTool

FOREIGN: Final = "llm_workers."
OWN: Final = "evalcore.tools."
_MODEL: Final = "llm_workers.tools.llm_tool.build_llm_tool"
_MODEL_NAME: Final = "llm"
_FETCH_MODULE: Final = "llm_workers.tools.fetch."
_FILE_MODULE: Final = "llm_workers.tools.fs."
_PROGRAM_MODULE: Final = "llm_workers.tools.unsafe."
BUILT_IN: Final = (
    _MODEL,
    *(f"{_FETCH_MODULE}{name}" for name in FETCH),
    *(f"{_FILE_MODULE}{name}" for name in FILES),
    *(f"{_PROGRAM_MODULE}{name}" for name in PROGRAMS),
)


def find_builtin(reference: str, name: str | None, config: Mapping[str, Any]) -> Tool | None:
    """Return the tool of such a name, None if it is none of them."""
    if reference in (_MODEL, f"{OWN}build_llm_tool", f"{OWN}llm"):
        return ModelTool(name or _MODEL_NAME, "Asks a model.", config)
    for prefix in (_FETCH_MODULE, OWN):
        kind = _snake_case(reference.removeprefix(prefix))
        if reference.startswith(prefix) and kind in FETCH:
            return FetchTool(name or kind, kind, config)
    for prefix in (_FILE_MODULE, _PROGRAM_MODULE, OWN):
        kind = _snake_case(reference.removeprefix(prefix).removeprefix("FilesystemToolkit/"))
        if reference.startswith(prefix) and kind in FILES and prefix != _PROGRAM_MODULE:
            return FileTool(name or kind, kind)
        if reference.startswith(prefix) and kind in PROGRAMS and prefix != _FILE_MODULE:
            return ProgramTool(name or kind, kind)
    return None


def built_in_program(reference: str) -> bool:
    """Whether a reference names a tool of the project that reads files or starts programs."""
    return isinstance(find_builtin(reference, None, {}), FileTool | ProgramTool)


def _snake_case(name: str) -> str:
    """Return `fetch_page_text` for `FetchPageTextTool`."""
    if not name[:1].isupper():
        return name
    text = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return text.removeprefix("_").removesuffix("_tool")
